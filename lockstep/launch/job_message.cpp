#include "lockstep/launch/job_message.h"

#include <array>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 15> kWords = {
    "lost",   "waits",   "ready", "recover", "begin", "notice", "refused", "pool",
    "resize", "regroup", "slow",  "evict",   "stays", "start",  "rest"};

// Output of ranks, which may be no UTF-8, is part of texts.
std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string encode(const JobMessage& message) {
  const JobMessage usual;
  json object = {{"generation", message.generation}};
  const auto put = [&](const char* name, const auto& value, const auto& otherwise) {
    if (value != otherwise) object[name] = value;
  };
  put("node", message.node, usual.node);
  put("rank", message.rank, usual.rank);
  put("ranks", message.ranks, usual.ranks);
  put("exit_code", message.exit_code, usual.exit_code);
  put("ended_itself", message.ended_itself, usual.ended_itself);
  put("blames", message.blames, usual.blames);
  put("time", message.time.count(), usual.time.count());
  put("regrouped", message.regrouped, usual.regrouped);
  put("count", message.count, usual.count);
  put("counts", message.counts, usual.counts);
  put("warm", message.warm, usual.warm);
  put("starting", message.starting, usual.starting);
  put("leave", message.leave, usual.leave);
  put("any_kept", message.any_kept, usual.any_kept);
  put("master_port", message.master_port, usual.master_port);
  put("job", message.job, usual.job);
  put("text", message.text, usual.text);
  put("more", message.more, usual.more);
  return std::string(kWords[static_cast<std::size_t>(message.kind)]) + " " + text_of(object);
}

std::optional<JobMessage> decode_message(std::string_view text) {
  JobMessage message;
  const std::string_view word = text.substr(0, text.find(' '));
  const auto* const found = std::find(kWords.begin(), kWords.end(), word);
  if (found == kWords.end() || word.size() == text.size()) return std::nullopt;
  message.kind = static_cast<JobMessage::Kind>(found - kWords.begin());
  try {
    const json object = json::parse(text.substr(word.size()));
    const auto take = [&](const char* name, auto& value) { value = object.value(name, value); };
    take("generation", message.generation);
    take("node", message.node);
    take("rank", message.rank);
    take("ranks", message.ranks);
    take("exit_code", message.exit_code);
    take("ended_itself", message.ended_itself);
    take("blames", message.blames);
    take("regrouped", message.regrouped);
    take("count", message.count);
    take("counts", message.counts);
    take("warm", message.warm);
    take("starting", message.starting);
    take("leave", message.leave);
    take("any_kept", message.any_kept);
    take("master_port", message.master_port);
    take("job", message.job);
    take("text", message.text);
    take("more", message.more);
    message.time = std::chrono::milliseconds(object.value("time", std::int64_t{0}));
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return message;
}

std::string encode(const NodeFacts& facts) {
  return text_of({{"ranks", facts.ranks},
                  {"master_port", facts.master_port},
                  {"restarts", facts.restarts},
                  {"least", facts.least},
                  {"least_nodes", facts.least_nodes},
                  {"spares", facts.spares},
                  {"job", facts.job},
                  {"generation", facts.generation},
                  {"kept", facts.kept}});
}

NodeFacts decode_facts(int node, std::string_view text) {
  try {
    const json object = json::parse(text);
    return {.ranks = object.at("ranks"),
            .master_port = object.at("master_port"),
            .restarts = object.at("restarts"),
            .least = object.at("least"),
            .least_nodes = object.at("least_nodes"),
            .spares = object.at("spares"),
            .job = object.at("job"),
            .generation = object.at("generation"),
            .kept = object.at("kept")};
  } catch (const json::exception&) {
    fail(ErrorCode::kProtocol, "node {} sent a malformed description of itself", node);
  }
}

}  // namespace lockstep
