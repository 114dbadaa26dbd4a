#include "lockstep/bench/train/helper.h"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/bench/collectives/worker.h"

namespace lockstep::bench {
namespace {

// Marks each line as the output of another process.
std::string in_quotes(std::string_view words) {
  if (words.empty()) return ", without output";
  std::string text;
  for (const std::string_view line : split_text(words, '\n')) text += fmt::format("\n  | {}", line);
  return text;
}

// What a line says went wrong; empty where it is an answer.
std::string error_in(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return fmt::format("an answer that is not a JSON object: {}", line);
  return json.value("error", "");
}

std::string answer_or_error(const std::function<std::string(std::string_view)>& answer,
                            std::string_view request) {
  try {
    return answer(request);
  } catch (const Error& error) {
    return nlohmann::json{{"error", error.what()}}.dump();
  }
}

}  // namespace

Helper::Helper(std::string name, Program program, const Interrupt& interrupt, Deadline deadline)
    : name_(std::move(name)), interrupt_(interrupt) {
  const MeetingPoint meeting = open_meeting_point();
  program.environment.emplace_back(kSocketVariable, meeting.name);
  process_ = std::make_unique<Process>(program);
  while (connection_ == nullptr) {
    if (!wait_for(meeting.socket.get(), deadline)) return;
    if (auto accepted = accept_at(meeting)) {
      connection_ = std::make_unique<Connection>(std::move(accepted->connection));
    }
  }
  greeting_ = next_line(deadline).value_or("");
}

// Until `fd` is readable; false where the process has ended or the deadline has passed instead.
bool Helper::wait_for(int fd, Deadline deadline) {
  std::array<pollfd, 3> handles{
      {{interrupt_.fd(), POLLIN, 0}, {fd, POLLIN, 0}, {process_->ended_fd(), POLLIN, 0}}};
  int ready = 0;
  do {
    ready = ::poll(handles.data(), handles.size(), poll_milliseconds(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) fail_errno("cannot wait for a bench's helper", errno);
  interrupt_.check();
  if (handles[1].revents != 0) return true;
  if (ready == 0) {
    fail_with("did not answer in time");
  } else {
    process_->wait_until(Deadline::min());
    fail_with(fmt::format("ended ({})", process_->how_it_ended()));
  }
  return false;
}

std::optional<std::string> Helper::next_line(Deadline deadline) {
  while (true) {
    if (auto line = connection_->take_line()) {
      const std::string error = error_in(*line);
      if (error.empty()) return line;
      fail_with(fmt::format("failed: {}", error));
      return std::nullopt;
    }
    if (!wait_for(connection_->fd(), deadline)) return std::nullopt;
    if (!connection_->read_some()) {
      process_->wait_until(deadline_in(std::chrono::seconds(1)));
      fail_with("went away");
      return std::nullopt;
    }
  }
}

void Helper::fail_with(std::string_view why) {
  connection_.reset();
  process_->end();
  failure_ = fmt::format("{} {}{}", name_, why, in_quotes(process_->last_words()));
}

std::optional<std::string> Helper::ask(std::string_view request, Deadline deadline) {
  if (!failure_.empty()) return std::nullopt;
  try {
    connection_->send_line(request);
    return next_line(deadline);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kAborted) throw;
    fail_with(fmt::format("failed: {}", error.what()));
    return std::nullopt;
  }
}

void serve_helper(std::string_view greeting,
                  const std::function<std::string(std::string_view request)>& answer) {
  const char* socket = std::getenv(kSocketVariable);
  if (socket == nullptr) {
    fail(ErrorCode::kInvalidArgument, "{} is not set: a helper is started by its bench",
         kSocketVariable);
  }
  Connection bench = connect_to(socket);
  bench.send_line(greeting);
  while (true) {
    const auto request = bench.receive_line();
    if (!request) return;
    bench.send_line(answer_or_error(answer, *request));
  }
}

}  // namespace lockstep::bench
