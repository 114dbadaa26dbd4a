#include "lockstep/live/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/host_port.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/live/access.h"
#include "lockstep/live/page.h"
#include "lockstep/live/prometheus.h"
#include "lockstep/train/observe/run_record.h"

namespace lockstep::live {
namespace {

constexpr std::size_t kThreads = 24;
constexpr int kMostReaders = 16;  // of news: they keep their threads
constexpr std::size_t kMostShown = 24;
constexpr std::size_t kShownAtFirst = 8;
constexpr std::size_t kMostPoints = 10'000;
constexpr std::size_t kMostBody = 1024;
constexpr time_t kReadSeconds = 5;
constexpr time_t kWriteSeconds = 5;
constexpr auto kToSayGoodbye = std::chrono::seconds(1);
constexpr auto kBetweenSigns = std::chrono::seconds(10);  // of life

// Nobody may frame the page, and it may load nothing from elsewhere.
std::string policy(std::string_view nonce) {
  return fmt::format(
      "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
      "img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
      nonce);
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<double> parse_number(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || after != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

// What a page needs to list a run.
std::string list_message(const Runs::List& all, const std::vector<std::string>& shown) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& run : all) {
    run->visit([&](const RunFollower::View& view) {
      list.push_back({{"run", run->id()},
                      {"state", name(view.state)},
                      {"model", view.figures.model},
                      {"step", view.totals.last.or_zero(Metric::kStep)},
                      {"steps", view.figures.steps},
                      {"workers", view.figures.workers}});
    });
  }
  return json_text({{"type", "runs"}, {"all", list}, {"shown", shown}});
}

// One connection of /api/news.
struct NewsReader {
  std::vector<std::string> wanted;  // ids; empty: those that changed last
  std::map<std::string, RunFollower::Seen, std::less<>> seen;
  std::string list;  // as it was sent last
  std::uint64_t version = 0;
  SteadyClock::time_point sent = SteadyClock::now();
};

// Server-sent events: a line for each message, which has no line breaks in it.
std::string events_for(NewsReader& reader, const Runs& runs) {
  const Runs::List all = runs.all();
  Runs::List shown;
  if (reader.wanted.empty()) {
    shown.assign(all.begin(),
                 all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), kShownAtFirst)));
  } else {
    for (const std::string& id : reader.wanted) {
      if (auto run = runs.find(id); run && shown.size() < kMostShown) shown.push_back(run);
    }
  }
  std::vector<std::string> ids;
  for (const auto& run : shown) ids.push_back(run->id());
  std::string text;
  std::string list = list_message(all, ids);
  if (std::exchange(reader.list, list) != list) text += fmt::format("data: {}\n\n", list);
  for (const auto& run : shown) {
    for (const std::string& message : run->news(reader.seen[run->id()])) {
      text += fmt::format("data: {}\n\n", message);
    }
  }
  return text;
}

std::string bearer(const httplib::Request& request) {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  return header.starts_with(kScheme) ? header.substr(kScheme.size()) : "";
}

}  // namespace

class Server::Impl {
 public:
  Impl(const Runs& runs, const ServerOptions& options)
      : runs_(runs), options_(options), names_{train::host_name()} {
    if (options_.token.empty()) fail(ErrorCode::kInvalidArgument, "a live page needs a token");
    names_.push_back(options_.address);
    // Without the library's SO_REUSEPORT, by which two servers would share a port unnoticed.
    http_.set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    http_.set_keep_alive_max_count(1);  // an idle connection would keep its thread
    http_.set_read_timeout(kReadSeconds);
    http_.set_write_timeout(kWriteSeconds);
    http_.set_payload_max_length(kMostBody);
    http_.set_tcp_nodelay(true);
    http_.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                               {"Referrer-Policy", "no-referrer"},
                               {"Cache-Control", "no-store"},
                               {"Cross-Origin-Resource-Policy", "same-origin"}});
    http_.set_pre_routing_handler([this](const auto& request, auto& response) {
      return admits(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                       : httplib::Server::HandlerResponse::Handled;
    });
    // What a handler throws shall not reach the client.
    http_.set_exception_handler([](const auto&, auto& response, std::exception_ptr) {
      response.status = 500;
      response.set_content("the request failed\n", "text/plain");
    });
    add_pages();
    bind();
  }

  int port() const { return port_; }

  std::string link() const {
    const bool everywhere = options_.address == "0.0.0.0" || options_.address == "::";
    const HostPort at{.host = everywhere ? train::host_name() : options_.address,
                      .port = static_cast<std::uint16_t>(port_)};
    return fmt::format("http://{}/?token={}", format_host_port(at), options_.token);
  }

  void serve() {
    serving_ = true;
    if (!stopped_) http_.listen_after_bind();
    serving_ = false;
  }

  void stop() {
    stopped_ = true;
    // Readers get a last word, if they take it soon.
    const auto begin = SteadyClock::now();
    while (has_readers() && SteadyClock::now() - begin < kToSayGoodbye) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // A server that is about to listen cannot be stopped before it does.
    while (serving_ && !http_.is_running()) std::this_thread::yield();
    http_.stop();
  }

  int readers_behind(std::uint64_t version) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::ranges::count_if(
        readers_, [&](const auto& reader) { return reader->version < version; }));
  }

 private:
  bool has_readers() const {
    const std::lock_guard lock(mutex_);
    return !readers_.empty();
  }

  // Answers requests that are refused.
  bool admits(const httplib::Request& request, httplib::Response& response) {
    const auto refuse = [&](int status, const char* why) {
      response.status = status;
      response.set_content(std::string(why) + '\n', "text/plain");
      return false;
    };
    if (request.get_header_value_count("Host") != 1 ||
        !is_known_host(request.get_header_value("Host"), names_)) {
      return refuse(403, "the Host header does not name this machine");
    }
    const bool by_header = request.has_header("Authorization");
    const std::string token = by_header ? bearer(request) : request.get_param_value("token");
    if (!is_token(token, options_.token)) {
      return refuse(403, "the token is missing or wrong: use the whole link that lockstep printed");
    }
    if (request.method != "GET") return refuse(405, "only GET is answered");
    if (request.has_header("Range")) return refuse(416, "ranges are not supported");
    return true;
  }

  void add_pages() {
    http_.Get("/", [](const auto&, auto& response) {
      const std::string nonce = make_token();
      response.set_header("Content-Security-Policy", policy(nonce));
      response.set_header("X-Frame-Options", "DENY");
      response.set_content(live_page(nonce), "text/html; charset=utf-8");
    });
    http_.Get("/metrics", [this](const auto&, auto& response) {
      response.set_content(prometheus_text(runs_.all()), kPrometheusType);
    });
    http_.Get("/api/news",
              [this](const auto& request, auto& response) { send_news(request, response); });
    http_.Get("/api/part",
              [this](const auto& request, auto& response) { send_part(request, response); });
  }

  void send_news(const httplib::Request& request, httplib::Response& response) {
    auto reader = std::make_shared<NewsReader>();
    const std::size_t wanted = request.get_param_value_count("run");
    for (std::size_t i = 0; i < std::min(wanted, kMostShown); ++i) {
      reader->wanted.push_back(request.get_param_value("run", i));
    }
    {
      const std::lock_guard lock(mutex_);
      if (static_cast<int>(readers_.size()) >= kMostReaders) {
        response.status = 503;
        response.set_content("too many pages are open\n", "text/plain");
        return;
      }
      readers_.push_back(reader);
    }
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, reader](std::size_t, httplib::DataSink& sink) { return send_next(*reader, sink); },
        [this, reader](bool) {
          const std::lock_guard lock(mutex_);
          std::erase(readers_, reader);
        });
  }

  // Waits for news and sends it. False where the client has gone.
  bool send_next(NewsReader& reader, httplib::DataSink& sink) {
    const bool first = reader.version == 0;
    const bool ends = stopped_ || (!first && !runs_.wait(reader.version)) || stopped_;
    const std::uint64_t version = runs_.version();
    std::string text = events_for(reader, runs_);
    const auto now = SteadyClock::now();
    if (text.empty() && now - reader.sent >= kBetweenSigns) text = ": still here\n\n";
    if (ends) text += "data: {\"type\":\"end\"}\n\n";
    if (!text.empty()) {
      if (!sink.is_writable() || !sink.write(text.data(), text.size())) return false;
      reader.sent = now;
    }
    {
      const std::lock_guard lock(mutex_);
      reader.version = version;
    }
    if (ends) sink.done();
    return true;
  }

  void send_part(const httplib::Request& request, httplib::Response& response) {
    const auto run = runs_.find(request.get_param_value("run"));
    const auto from = parse_number(request.get_param_value("from"));
    const auto to = parse_number(request.get_param_value("to"));
    const auto points = parse_number(request.get_param_value("points"));
    const std::string axis = request.get_param_value("axis");
    const bool known = axis == "step" || axis == "tokens" || axis == "seconds";
    if (!run || !from || !to || !known || !points || *points < 1 || *points > kMostPoints) {
      response.status = run ? 400 : 404;
      response.set_content(run ? "give run, axis (step, tokens or seconds), from, to and points\n"
                               : "there is no such run\n",
                           "text/plain");
      return;
    }
    using Axis = MetricsFollower::Axis;
    const Axis by = axis == "step"     ? Axis::kStep
                    : axis == "tokens" ? Axis::kTokens
                                       : Axis::kSeconds;
    // The library compresses plain application/json, slowly.
    response.set_content(run->part(by, *from, *to, static_cast<std::size_t>(*points)),
                         "application/json; charset=utf-8");
  }

  void bind() {
    const std::string& address = options_.address;
    if (options_.port == 0) {
      port_ = http_.bind_to_any_port(address);
      if (port_ > 0) return;
    } else if (http_.bind_to_port(address, options_.port)) {
      port_ = options_.port;
      return;
    }
    if (errno == EADDRINUSE) {
      fail(ErrorCode::kSystem,
           "cannot serve the live page at port {} of {}: another program uses it. Choose another "
           "port",
           options_.port, address);
    }
    fail(ErrorCode::kInvalidArgument,
         "cannot serve the live page at port {} of {}: {}. Give an address of this machine, such "
         "as 127.0.0.1, and a port from 1024 on",
         options_.port, address,
         errno != 0 ? std::generic_category().message(errno) : "there is no such address");
  }

  const Runs& runs_;
  ServerOptions options_;
  std::vector<std::string> names_;
  httplib::Server http_;
  int port_ = 0;
  std::atomic<bool> serving_{false};
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<NewsReader>> readers_;
};

Server::Server(const Runs& runs, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(runs, options)) {}
Server::~Server() = default;
int Server::port() const { return impl_->port(); }
std::string Server::link() const { return impl_->link(); }
void Server::serve() { impl_->serve(); }
void Server::stop() { impl_->stop(); }
int Server::readers_behind(std::uint64_t version) const { return impl_->readers_behind(version); }

}  // namespace lockstep::live
