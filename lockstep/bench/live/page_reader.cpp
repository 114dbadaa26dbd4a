#include "lockstep/bench/live/page_reader.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::bench {
namespace {

constexpr std::chrono::seconds kToConnect{10};

}  // namespace

PageReader::PageReader(std::string_view link) {
  constexpr std::string_view kScheme = "http://";
  const auto slash = link.find('/', kScheme.size());
  const auto token = link.find("token=");
  if (!link.starts_with(kScheme) || token == std::string_view::npos) {
    fail(ErrorCode::kInvalidArgument, "{} is no link to a live page", link);
  }
  const std::string host(link.substr(kScheme.size(), slash - kScheme.size()));
  socket_ = connect_tcp(parse_host_port(host), deadline_in(kToConnect));
  const std::string request =
      fmt::format("GET /api/news?{} HTTP/1.1\r\nHost: localhost\r\n\r\n", link.substr(token));
  std::string_view left = request;
  while (!left.empty()) {
    const ssize_t sent = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) fail(ErrorCode::kSystem, "the live page takes no request");
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
}

bool PageReader::receive(Deadline deadline) {
  if (!wait_for_fd(socket_.get(), POLLIN, deadline)) return false;
  std::array<char, std::size_t{64} << 10> block;
  const ssize_t count = ::recv(socket_.get(), block.data(), block.size(), 0);
  if (count <= 0) fail(ErrorCode::kSystem, "the live page has ended the connection");
  received_.append(block.data(), static_cast<std::size_t>(count));
  return true;
}

// The body comes in chunks: its length in hexadecimal digits on a line, its bytes, an empty line.
std::optional<std::string> PageReader::next_line() {
  constexpr std::string_view kLineEnd = "\r\n";
  while (true) {
    if (const auto end = text_.find('\n'); end != std::string::npos) {
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return line;
    }
    if (!has_head_) {
      const auto head = received_.find("\r\n\r\n");
      if (head == std::string::npos) return std::nullopt;
      if (received_.find(" 200 ") > head) {
        fail(ErrorCode::kSystem, "the live page answers {}",
             received_.substr(0, received_.find(kLineEnd)));
      }
      received_.erase(0, head + 4);
      has_head_ = true;
    }
    const auto size_end = received_.find(kLineEnd);
    if (size_end == std::string::npos) return std::nullopt;
    std::size_t size = 0;
    std::from_chars(received_.data(), received_.data() + size_end, size, 16);
    const std::size_t begin = size_end + kLineEnd.size();
    if (received_.size() < begin + size + kLineEnd.size()) return std::nullopt;
    text_ += received_.substr(begin, size);
    received_.erase(0, begin + size + kLineEnd.size());
  }
}

std::optional<PageReader::Shown> PageReader::next(Deadline deadline) {
  constexpr std::string_view kStatus = "data: {\"type\":\"status\"";
  constexpr std::size_t kPrefix = 6;  // "data: "
  while (true) {
    while (const auto line = next_line()) {
      if (!line->starts_with(kStatus)) continue;
      const auto status = nlohmann::json::parse(line->substr(kPrefix), nullptr, false);
      if (!status.is_object()) continue;
      const auto number = [&](const char* key) {
        return status.contains(key) && status[key].is_number() ? status[key].get<double>() : 0;
      };
      return Shown{.rows = static_cast<std::int64_t>(number("rows")),
                   .step = static_cast<std::int64_t>(number("step")),
                   .reading = status.value("reading", false)};
    }
    if (!receive(deadline)) return std::nullopt;
  }
}

}  // namespace lockstep::bench
