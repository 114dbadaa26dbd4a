#include "lockstep/train/checkpoint/manifest.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kVersionOfWorkers = 2;  // with states of each worker
constexpr std::string_view kHash = "xxh3_128";
// What stands before and behind the manifest's own hash.
constexpr std::string_view kBeforeHash = ",\n  \"xxh3_128\": \"";
constexpr std::string_view kBehindHash = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;
constexpr std::string_view kStatesOfWorker = "states-";
constexpr std::string_view kStatesEnding = ".safetensors";

[[noreturn]] void reject_manifest(std::string_view source, std::string_view why) {
  fail(ErrorCode::kProtocol, "{} is damaged: {}", source, why);
}

// Cuts off the end that holds the hash, once it is found to be right.
std::string_view checked_body(std::string_view text, std::string_view source) {
  const std::size_t tail = kBeforeHash.size() + kHashDigits + kBehindHash.size();
  if (text.size() < tail || !text.ends_with(kBehindHash))
    reject_manifest(source, "it is truncated");
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view end = text.substr(body.size());
  const std::string hash = io::hash_of(body).hash;
  if (!end.starts_with(kBeforeHash) || end.substr(kBeforeHash.size(), kHashDigits) != hash) {
    reject_manifest(source, "its hash does not match its content");
  }
  return body;
}

// One file, or that of each of some number of workers.
void check_states_files(const Manifest& manifest, std::int64_t version, std::string_view source) {
  const std::vector<std::string> files = states_files(manifest);
  if (version == kVersion && files == std::vector{std::string(kStatesFile)}) return;
  const auto workers = static_cast<int>(files.size());
  if (version == kVersion || files.empty()) {
    reject_manifest(source, fmt::format("it lists no '{}'", kStatesFile));
  }
  for (int i = 0; i < workers; ++i) {
    const std::string expected = states_file_of(i, workers);
    const std::string& found = files[static_cast<std::size_t>(i)];
    if (found == expected) continue;
    reject_manifest(source,
                    fmt::format("it lists {} states files, with '{}' where '{}' was expected",
                                counted(files.size(), "file"), found, expected));
  }
}

template <class T>
T member(const Json& object, const char* key, std::string_view source) {
  try {
    return object.at(key).get<T>();
  } catch (const Json::exception& error) {
    reject_manifest(source, error.what());
  }
}

}  // namespace

bool is_states_file(std::string_view name) {
  return name == kStatesFile ||
         (name.starts_with(kStatesOfWorker) && name.ends_with(kStatesEnding));
}

std::string states_file_of(int worker, int workers) {
  return fmt::format("{}{:05}-of-{:05}{}", kStatesOfWorker, worker + 1, workers, kStatesEnding);
}

std::vector<std::string> states_files(const Manifest& manifest) {
  std::vector<std::string> files;
  for (const auto& [name, hash] : manifest.files) {
    if (is_states_file(name)) files.push_back(name);
  }
  return files;
}

std::string format_manifest(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, hash] : manifest.files) {
    files[name] = {{"bytes", hash.bytes}, {kHash, hash.hash}};
  }
  Json scale;
  if (const auto& of = manifest.state.loss_scale) {
    scale = {{"scale", of->scale}, {"good_steps", of->good_steps}};
  }
  Json json{{"format", kFormat},
            {"version", manifest.files.contains(kStatesFile) ? kVersion : kVersionOfWorkers},
            {"step", manifest.state.steps},
            {"updates", manifest.state.updates},
            {"loss_scale", std::move(scale)}};
  if (!manifest.data.empty()) json["data"] = manifest.data;
  if (!manifest.fingerprint.empty()) json["fingerprint"] = manifest.fingerprint;
  if (manifest.validation_loss) json["val_loss"] = *manifest.validation_loss;
  json["files"] = std::move(files);
  std::string body = json.dump(2);
  body.resize(body.size() - std::string_view("\n}").size());
  return fmt::format("{}{}{}{}", body, kBeforeHash, io::hash_of(body).hash, kBehindHash);
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  const std::string body(checked_body(text, source));
  Json json;
  try {
    json = Json::parse(body + "}");
  } catch (const Json::exception& error) {
    reject_manifest(source, error.what());
  }
  if (member<std::string>(json, "format", source) != kFormat) {
    reject_manifest(source, "it is not the manifest of a checkpoint");
  }
  const auto version = member<std::int64_t>(json, "version", source);
  if (version != kVersion && version != kVersionOfWorkers) {
    fail(ErrorCode::kUnsupported,
         "{} is of version {}; this lockstep reads versions {} and {}: use the one that wrote it, "
         "or a later one",
         source, version, kVersion, kVersionOfWorkers);
  }
  Manifest manifest;
  manifest.state.steps = member<std::int64_t>(json, "step", source);
  manifest.state.updates = member<std::int64_t>(json, "updates", source);
  const auto scale = member<Json>(json, "loss_scale", source);
  if (!scale.is_null()) {
    manifest.state.loss_scale = {.scale = member<double>(scale, "scale", source),
                                 .good_steps = member<std::int64_t>(scale, "good_steps", source)};
  }
  if (json.contains("data")) manifest.data = member<std::string>(json, "data", source);
  if (json.contains("fingerprint")) {
    manifest.fingerprint = member<std::string>(json, "fingerprint", source);
  }
  if (json.contains("val_loss"))
    manifest.validation_loss = member<double>(json, "val_loss", source);
  const auto files = member<Json>(json, "files", source);
  for (const auto& [name, file] : files.items()) {
    if (!is_states_file(name) && name != kConfigFile && name != kTokenizerFile &&
        name != kResidualsFile) {
      reject_manifest(source, fmt::format("it lists '{}'", name));
    }
    manifest.files[name] = {.bytes = member<std::uint64_t>(file, "bytes", source),
                            .hash = member<std::string>(file, kHash.data(), source)};
  }
  check_states_files(manifest, version, source);
  if (!manifest.files.contains(kConfigFile)) {
    reject_manifest(source, fmt::format("it lists no '{}'", kConfigFile));
  }
  const optim::LossScale loss_scale = manifest.state.loss_scale.value_or(optim::LossScale());
  if (manifest.state.updates < 0 || manifest.state.steps < manifest.state.updates ||
      loss_scale.good_steps < 0 || !std::isfinite(loss_scale.scale) || loss_scale.scale <= 0) {
    reject_manifest(source, "its numbers are out of range");
  }
  return manifest;
}

}  // namespace lockstep::train
