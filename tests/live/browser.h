// Headless Chromium, driven by its debugging protocol over two pipes: file 3 takes commands, file 4
// gives answers and events, each a JSON object that a zero byte ends.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep::live {

class Browser {
 public:
  using Json = nlohmann::json;

  // The program; empty: there is none. LOCKSTEP_CHROMIUM names another.
  static std::string program() {
    if (const char* named = std::getenv("LOCKSTEP_CHROMIUM")) return named;
    for (const char* path :
         {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"}) {
      if (::access(path, X_OK) == 0) return path;
    }
    return "";
  }

  explicit Browser(const std::filesystem::path& profile) {
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    const std::string command = program();
    const std::string folder = "--user-data-dir=" + profile.string();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int null = ::open("/dev/null", O_RDWR);
      // Away from 3 and 4 first: either may be one of the pipes' own numbers.
      const int commands = ::fcntl(in.read_end.get(), F_DUPFD, 10);
      const int answers = ::fcntl(out.write_end.get(), F_DUPFD, 10);
      ::dup2(commands, 3);
      ::dup2(answers, 4);
      for (const int file : {0, 1, 2}) ::dup2(null, file);
      ::execl(command.c_str(), command.c_str(), "--headless", "--no-sandbox", "--disable-gpu",
              "--disable-dev-shm-usage", "--disable-extensions", "--no-first-run",
              "--disable-background-networking", "--remote-debugging-pipe", folder.c_str(),
              "about:blank", nullptr);
      ::_exit(127);
    }
    to_ = std::move(in.write_end);
    from_ = std::move(out.read_end);
  }
  ~Browser() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  // Opens a page in a window of that size. Returns when it has loaded.
  void open(const std::string& address, int width, int height, bool dark = false) {
    const std::string target = call("Target.createTarget", {{"url", "about:blank"}})["targetId"];
    session_ =
        call("Target.attachToTarget", {{"targetId", target}, {"flatten", true}})["sessionId"];
    for (const char* domain : {"Page", "Runtime", "Log"}) call(std::string(domain) + ".enable");
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", width < 600}});
    call("Emulation.setEmulatedMedia",
         {{"features", {{{"name", "prefers-color-scheme"}, {"value", dark ? "dark" : "light"}}}}});
    loaded_ = false;
    call("Page.navigate", {{"url", address}});
    while (!loaded_) receive();
  }

  // The value of an expression; of a promise, what it resolves to.
  Json evaluate(const std::string& expression) {
    const Json answer =
        call("Runtime.evaluate",
             {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
    if (answer.contains("exceptionDetails")) {
      throw std::runtime_error(expression + ": " + answer["exceptionDetails"].dump());
    }
    return answer["result"].contains("value") ? answer["result"]["value"] : Json();
  }

  // Waits until an expression is true.
  bool becomes(const std::string& expression) {
    const Deadline deadline = deadline_in(std::chrono::seconds(60));
    while (!has_passed(deadline)) {
      const Json value = evaluate(expression);
      if (value.is_boolean() && value.get<bool>()) return true;
      ::poll(nullptr, 0, 20);
    }
    return false;
  }

  void move_pointer(double x, double y) { mouse("mouseMoved", x, y, 0); }
  void drag(double x1, double x2, double y) {
    mouse("mouseMoved", x1, y, 0);
    mouse("mousePressed", x1, y, 1);
    mouse("mouseMoved", (x1 + x2) / 2, y, 1);
    mouse("mouseMoved", x2, y, 1);
    mouse("mouseReleased", x2, y, 0);
  }

  // The whole page as PNG, in the folder that LOCKSTEP_SCREENSHOTS names.
  void picture(const std::string& name) {
    const char* folder = std::getenv("LOCKSTEP_SCREENSHOTS");
    if (folder == nullptr) return;
    const Json shot = call("Page.captureScreenshot", {{"captureBeyondViewport", true}});
    std::filesystem::create_directories(folder);
    std::ofstream(std::filesystem::path(folder) / (name + ".png"), std::ios::binary)
        << decoded(shot["data"].get<std::string>());
  }

  // What the page, or the browser about it, has complained of.
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  // Of base64.
  static std::string decoded(const std::string& text) {
    static constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text) {
      const auto digit = kDigits.find(c);
      if (digit == std::string_view::npos) continue;
      bits = bits << 6 | static_cast<std::uint32_t>(digit);
      count += 6;
      if (count < 8) continue;
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
    return bytes;
  }

  void mouse(const char* type, double x, double y, int buttons) {
    call("Input.dispatchMouseEvent", {{"type", type},
                                      {"x", x},
                                      {"y", y},
                                      {"button", "left"},
                                      {"buttons", buttons},
                                      {"clickCount", 1}});
  }

  Json call(const std::string& method, const Json& parameters = Json::object()) {
    Json command = {{"id", ++last_}, {"method", method}, {"params", parameters}};
    if (!session_.empty()) command["sessionId"] = session_;
    const std::string text = command.dump() + '\0';
    std::size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count = ::write(to_.get(), text.data() + sent, text.size() - sent);
      if (count <= 0) throw std::runtime_error("the browser has gone");
      sent += static_cast<std::size_t>(count);
    }
    while (true) {
      const Json answer = receive();
      if (!answer.contains("id") || answer["id"] != last_) continue;
      if (answer.contains("error")) throw std::runtime_error(method + answer["error"].dump());
      return answer["result"];
    }
  }

  Json receive() {
    const Deadline deadline = deadline_in(std::chrono::seconds(60));
    auto end = text_.find('\0');
    while (end == std::string::npos) {
      pollfd waits{.fd = from_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waits, 1, 100) > 0) {
        char block[65536];
        const ssize_t count = ::read(from_.get(), block, sizeof block);
        if (count <= 0) throw std::runtime_error("the browser has gone");
        text_.append(block, static_cast<std::size_t>(count));
      } else if (has_passed(deadline)) {
        throw std::runtime_error("the browser is silent");
      }
      end = text_.find('\0');
    }
    const Json message = Json::parse(text_.substr(0, end));
    text_.erase(0, end + 1);
    const std::string method = message.value("method", "");
    if (method == "Page.loadEventFired") loaded_ = true;
    const bool logged = method == "Runtime.consoleAPICalled" || method == "Log.entryAdded";
    if (logged || method == "Runtime.exceptionThrown") {
      complaints_.push_back(message["params"].dump());
    }
    return message;
  }

  pid_t pid_ = -1;
  UniqueFd to_, from_;
  std::string session_;
  std::string text_;
  int last_ = 0;
  bool loaded_ = false;
  std::vector<std::string> complaints_;
};

}  // namespace lockstep::live
