#include "lockstep/comm/rendezvous/gathering.h"

#include "lockstep/comm/rendezvous/wire.h"

namespace lockstep::rendezvous {

void Gatherings::check(const Deposit& deposit) const {
  if (deposit.size < least_ || deposit.size > size_) {
    fail(ErrorCode::kMismatch,
         "this job has {} {}s, but {} {} was started as one of {}; start all of them with the same "
         "number",
         size_, noun_, noun_, deposit.member, deposit.size);
  }
  if (deposit.member < 0 || deposit.member >= deposit.size) {
    fail(ErrorCode::kMismatch, "{} {} does not exist in a job of {}; numbers start at 0", noun_,
         deposit.member, deposit.size);
  }
}

std::optional<Gathered> Gatherings::add(ClientId client, Deposit deposit) {
  if (waits(client)) {
    fail(ErrorCode::kProtocol, "a client takes part in one exchange at a time");
  }
  check(deposit);
  Gathering& gathering = by_key_[deposit.key];
  if (gathering.size == 0) gathering.size = deposit.size;
  if (gathering.size != deposit.size) {
    fail(
        ErrorCode::kMismatch,
        "{} {} was started as one of {}, but others as some of {}; start all of them with the same "
        "number",
        noun_, deposit.member, deposit.size, gathering.size);
  }
  if (gathering.present.contains(deposit.member)) {
    fail(ErrorCode::kMismatch,
         "{} {} has already joined; another process was started with the same number", noun_,
         deposit.member);
  }
  gathering.present.emplace(deposit.member, Present{client, std::move(deposit.blob)});
  key_of_.emplace(client, deposit.key);
  if (gathering.present.size() < static_cast<std::size_t>(gathering.size)) return std::nullopt;
  return complete(deposit.key);
}

bool Gatherings::may_settle(const std::string& key, int least) const {
  const auto found = by_key_.find(key);
  return found != by_key_.end() && found->second.present.contains(0) &&
         found->second.present.size() >= static_cast<std::size_t>(least);
}

std::optional<Gathered> Gatherings::settle(const std::string& key, int least) {
  if (!may_settle(key, least)) return std::nullopt;
  return complete(key);
}

Gathered Gatherings::complete(const std::string& key) {
  Gathering& gathering = by_key_.at(key);
  Gathered gathered;
  std::string reply;
  for (int member = 0; member < gathering.size; ++member) {
    const auto found = gathering.present.find(member);
    const bool is_here = found != gathering.present.end();
    gathered.blobs.push_back(is_here ? found->second.blob : "");
    reply += FrameWriter(Kind::kBlob)
                 .number(static_cast<std::uint32_t>(member))
                 .text(gathered.blobs.back())
                 .finish();
    if (!is_here) continue;
    gathered.clients.push_back(found->second.client);
    gathered.members.push_back(member);
    key_of_.erase(found->second.client);
  }
  gathered.reply = std::make_shared<const std::string>(std::move(reply));
  by_key_.erase(key);
  return gathered;
}

std::optional<Gatherings::Broken> Gatherings::withdraw(ClientId client) {
  const auto found = key_of_.find(client);
  if (found == key_of_.end()) return std::nullopt;
  Broken broken;
  const std::string key = found->second;
  for (const auto& [member, present] : by_key_.at(key).present) {
    if (present.client == client) {
      broken.member = member;
    } else {
      broken.others.push_back(present.client);
    }
    key_of_.erase(present.client);
  }
  by_key_.erase(key);
  return broken;
}

void Gatherings::forget(ClientId client) {
  const auto found = key_of_.find(client);
  if (found == key_of_.end()) return;
  const auto gathering = by_key_.find(found->second);
  std::erase_if(gathering->second.present,
                [&](const auto& present) { return present.second.client == client; });
  if (gathering->second.present.empty()) by_key_.erase(gathering);
  key_of_.erase(found);
}

std::vector<int> Gatherings::missing(ClientId client) const {
  std::vector<int> members;
  const auto found = key_of_.find(client);
  if (found == key_of_.end()) return members;
  const Gathering& gathering = by_key_.at(found->second);
  for (int member = 0; member < gathering.size; ++member) {
    if (!gathering.present.contains(member)) members.push_back(member);
  }
  return members;
}

}  // namespace lockstep::rendezvous
