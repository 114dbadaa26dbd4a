// A client of HTTP over a plain socket, which sends exactly what a test wants.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/socket.h"

namespace lockstep::live {

inline constexpr std::chrono::seconds kPatience{60};

struct HttpAnswer {
  int status = 0;  // 0: the connection ended without an answer
  std::string head;
  std::string body;
};

class HttpConnection {
 public:
  explicit HttpConnection(int port)
      : socket_(connect_tcp({.host = "127.0.0.1", .port = static_cast<std::uint16_t>(port)},
                            deadline_in(kPatience))) {}

  // What the server does not take any more is not sent.
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void get(const std::string& target, const std::string& more = "") {
    send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
  }

  // Until the text so far has `wanted`, or the connection ends. Returns all of it.
  const std::string& read_until(std::string_view wanted) {
    const Deadline deadline = deadline_in(kPatience);
    while (text_.find(wanted) == std::string::npos && !has_passed(deadline)) {
      pollfd waits{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waits, 1, 100) <= 0) continue;
      char block[65536];
      const ssize_t count = ::recv(socket_.get(), block, sizeof block, 0);
      if (count <= 0) {
        ended_ = true;
        break;
      }
      text_.append(block, static_cast<std::size_t>(count));
    }
    return text_;
  }
  void forget() { text_.clear(); }  // what was read so far
  bool ended() const { return ended_; }

  // Of a connection that the server closes after its answer.
  HttpAnswer answer() {
    const std::string all = read_until(std::string_view("\0never\0", 7));
    HttpAnswer answer;
    const auto head = all.find("\r\n\r\n");
    if (!all.starts_with("HTTP/1.1 ") || head == std::string::npos) return answer;
    answer.status = std::atoi(all.c_str() + 9);
    answer.head = all.substr(0, head);
    answer.body = all.substr(head + 4);
    return answer;
  }

 private:
  UniqueFd socket_;
  std::string text_;
  bool ended_ = false;
};

inline HttpAnswer http_get(int port, const std::string& target, const std::string& more = "") {
  HttpConnection connection(port);
  connection.get(target, more);
  return connection.answer();
}

}  // namespace lockstep::live
