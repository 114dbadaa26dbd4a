#include "lockstep/live/run_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::live {
namespace {

using FileJson = nlohmann::ordered_json;

FileJson parse_object(std::string_view text) {
  FileJson json = FileJson::parse(text, nullptr, false);
  return json.is_object() ? json : FileJson::object();
}

double number_in(const FileJson& object, const char* key, double otherwise = 0) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

// A count of ranks, within reason.
std::int64_t count_in(const FileJson& object, const char* key, double otherwise) {
  return static_cast<std::int64_t>(std::clamp(number_in(object, key, otherwise), 0.0, 1e6));
}

}  // namespace

std::string compact_object(std::string_view text) {
  const FileJson json = FileJson::parse(text, nullptr, false);
  if (!json.is_object()) return "";
  return json.dump(-1, ' ', false, FileJson::error_handler_t::replace);
}

RunFigures parse_figures(const std::string& facts) {
  const FileJson json = parse_object(facts);
  RunFigures figures;
  if (json.contains("model") && json["model"].is_string()) figures.model = json["model"];
  figures.workers = count_in(json, "workers", 1);
  figures.steps = number_in(json, "steps");
  figures.step_tokens = number_in(json, "step_tokens");
  figures.step_flops = number_in(json, "step_flops");
  figures.peak_flops = number_in(json, "peak_flops");
  figures.memory_bytes = number_in(json, "memory_bytes");
  return figures;
}

RankFigures parse_ranks(const std::string& ranks) {
  const FileJson json = parse_object(ranks);
  RankFigures figures;
  figures.ranks_of_worker = std::max<std::int64_t>(count_in(json, "ranks_of_worker", 1), 1);
  if (json.contains("straggler") && json["straggler"].is_object()) {
    figures.straggler = count_in(json["straggler"], "rank", 0);
  }
  if (!json.contains("workers") || !json["workers"].is_array()) return figures;
  for (const FileJson& worker : json["workers"]) {
    figures.workers.push_back({.known = worker.is_object(),
                               .compute_ms = number_in(worker, "compute_ms"),
                               .communication_ms = number_in(worker, "communication_ms"),
                               .exposed_ms = number_in(worker, "exposed_ms"),
                               .step_ms = number_in(worker, "step_ms")});
  }
  return figures;
}

}  // namespace lockstep::live
