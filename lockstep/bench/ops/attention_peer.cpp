#include "lockstep/bench/ops/attention_peer.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kStartTimeout{5};
constexpr std::chrono::minutes kBatchTimeout{2};

}  // namespace

AttentionPeer::AttentionPeer(const std::string& python, const std::filesystem::path& script,
                             const Interrupt& interrupt)
    : helper_("cudnn", {{python, script.string()}, {}}, interrupt, deadline_in(kStartTimeout)) {
  const auto greeting = Json::parse(helper_.greeting(), nullptr, false);
  if (greeting.is_object()) {
    version_ =
        fmt::format("{}, PyTorch {}", greeting.value("name", ""), greeting.value("version", ""));
  }
}

std::string AttentionPeer::request(const ops::AttentionShape& shape, bool backward,
                                   std::size_t calls) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", backward ? "backward" : "forward",
                     shape.batch, shape.queries, shape.keys, shape.heads, shape.kv_heads,
                     shape.head_size, shape.causal ? 1 : 0, name(shape.dtype), calls);
}

PeerTime AttentionPeer::time(const ops::AttentionShape& shape, bool backward, std::size_t calls) {
  const auto line = helper_.ask(request(shape, backward, calls), deadline_in(kBatchTimeout));
  if (!line) return {.problem = helper_.failure()};
  const auto answer = Json::parse(*line, nullptr, false);
  return {.seconds = answer.value("seconds", 0.0),
          .note = answer.value("note", ""),
          .problem = answer.value("problem", "")};
}

}  // namespace lockstep::bench
