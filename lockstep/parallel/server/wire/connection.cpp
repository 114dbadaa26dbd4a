#include "lockstep/parallel/server/wire/connection.h"

#include <algorithm>

namespace lockstep::parallel {

void Connection::post(OutMessage message, std::uint64_t number, Time now) {
  if (broken_ || !is_open()) return;
  const Urgency urgency{message.priority, number};
  queue_.emplace(urgency, Waiting{std::move(message), urgency, now});
}

Connection::Urgency Connection::first() const {
  if (queue_.empty()) return current_.urgency;
  return is_sending() ? std::min(current_.urgency, queue_.begin()->first) : queue_.begin()->first;
}

void Connection::begin_chunk() {
  if (!sending_) {
    current_ = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    sending_ = true;
    sent_ = 0;
    limit_ = 0;
  }
  const std::size_t total = sizeof(Header) + current_.message.payload.size();
  if (nic_ == nullptr) {
    limit_ = total;
    return;
  }
  const std::size_t bytes = std::min(nic_->chunk(), total - limit_);
  prefix_ = nic_->send(bytes, current_.since);
  prefix_left_ = sizeof prefix_;
  limit_ += bytes;
}

bool Connection::send() {
  if (broken_) return true;
  if (limit_ > sent_ || prefix_left_ > 0) {  // what a full pipe left over
    if (!write()) return false;
    if (nic_ != nullptr) return true;
  }
  while (has_more()) {
    begin_chunk();
    if (!write()) return false;
    if (nic_ != nullptr) return true;
  }
  return true;
}

bool Connection::write() {
  const std::size_t total = sizeof(Header) + current_.message.payload.size();
  while (prefix_left_ > 0 || sent_ < limit_) {
    iovec parts[3];
    std::size_t count = 0;
    const auto add = [&](const void* data, std::size_t bytes) {
      if (bytes > 0) parts[count++] = {const_cast<void*>(data), bytes};
    };
    const auto* prefix = reinterpret_cast<const std::byte*>(&prefix_);
    add(prefix + sizeof prefix_ - prefix_left_, prefix_left_);
    const std::size_t header_sent = std::min(sent_, sizeof(Header));
    const std::size_t header_end = std::min(limit_, sizeof(Header));
    const auto* header = reinterpret_cast<const std::byte*>(&current_.message.header);
    add(header + header_sent, header_end - header_sent);
    const std::size_t payload_sent = std::max(sent_, sizeof(Header)) - sizeof(Header);
    const std::size_t payload_end = std::max(limit_, sizeof(Header)) - sizeof(Header);
    add(current_.message.payload.data() + payload_sent, payload_end - payload_sent);

    const std::optional<std::size_t> taken = pipe_.write({parts, count});
    if (taken == 0) return false;
    if (!taken) {
      broken_ = true;
      queue_.clear();
      sending_ = false;
      prefix_left_ = 0;
      sent_ = limit_ = 0;
      return true;
    }
    const std::size_t of_prefix = std::min(*taken, prefix_left_);
    prefix_left_ -= of_prefix;
    sent_ += *taken - of_prefix;
    bytes_sent_ += *taken - of_prefix;
  }
  if (sent_ == total) {
    sending_ = false;
    current_ = {};
    sent_ = limit_ = 0;
  }
  return true;
}

Connection::Progress Connection::read(std::span<std::byte> into, std::size_t& filled) {
  const std::optional<std::size_t> got = pipe_.read(into.subspan(filled));
  if (!got) return Progress::kClosed;
  filled += *got;
  return *got > 0 ? Progress::kSome : Progress::kNothing;
}

Connection::Progress Connection::receive() {
  if (nic_ != nullptr && chunk_left_ == 0) {
    const auto bytes = std::as_writable_bytes(std::span(&chunk_, 1));
    const Progress progress = read(bytes, chunk_header_filled_);
    if (chunk_header_filled_ < bytes.size()) return progress;
    chunk_header_filled_ = 0;
    chunk_left_ = chunk_.bytes;
    if (chunk_left_ == 0) return Progress::kClosed;  // no peer of ours sends that
    return Progress::kSome;
  }
  // What is read now: the header or the payload, no further than the chunk goes.
  const bool in_header = header_filled_ < sizeof(Header);
  const auto whole = in_header ? std::as_writable_bytes(std::span(&header_, 1)) : payload_;
  std::size_t& filled = in_header ? header_filled_ : payload_filled_;
  const std::size_t before = filled;
  const std::size_t most =
      nic_ != nullptr ? std::min(whole.size(), before + chunk_left_) : whole.size();
  if (before < most) {
    const Progress progress = read(whole.first(most), filled);
    if (filled == before) return progress;
    if (nic_ != nullptr) {
      chunk_left_ -= filled - before;
      if (chunk_left_ == 0) seen_at_ = nic_->receive(chunk_);
    }
  }
  if (in_header) return header_filled_ == sizeof(Header) ? Progress::kHeader : Progress::kSome;
  return payload_filled_ == payload_.size() ? Progress::kWhole : Progress::kSome;
}

bool Connection::drain() {
  std::byte bin[1 << 14];
  std::size_t filled = 0;
  const Progress progress = read(bin, filled);
  return progress != Progress::kClosed;
}

void Connection::next_message() {
  header_filled_ = 0;
  payload_filled_ = 0;
  payload_ = {};
}

}  // namespace lockstep::parallel
