#include "lockstep/train/manifest.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "lockstep checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr std::string_view kHash = "xxh3_128";
// What stands before and behind the manifest's own hash.
constexpr std::string_view kBeforeHash = ",\n  \"xxh3_128\": \"";
constexpr std::string_view kBehindHash = "\"\n}\n";
constexpr std::size_t kHashDigits = 32;

[[noreturn]] void reject_manifest(std::string_view source, std::string_view why) {
  fail(ErrorCode::kProtocol, "{} is damaged: {}", source, why);
}

// Cuts off the end that holds the hash, once it is found to be right.
std::string_view checked_body(std::string_view text, std::string_view source) {
  const std::size_t tail = kBeforeHash.size() + kHashDigits + kBehindHash.size();
  if (text.size() < tail || !text.ends_with(kBehindHash))
    reject_manifest(source, "its end is missing");
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view end = text.substr(body.size());
  const std::string hash = io::hash_of(body).hash;
  if (!end.starts_with(kBeforeHash) || end.substr(kBeforeHash.size(), kHashDigits) != hash) {
    reject_manifest(source, "its hash is not that of its content");
  }
  return body;
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

std::string format_manifest(const Manifest& manifest) {
  Json files = Json::object();
  for (const auto& [name, hash] : manifest.files) {
    files[name] = {{"bytes", hash.bytes}, {kHash, hash.hash}};
  }
  Json scale;
  if (const auto& of = manifest.state.loss_scale) {
    scale = {{"scale", of->scale}, {"good_steps", of->good_steps}};
  }
  const Json json{{"format", kFormat},
                  {"version", kVersion},
                  {"step", manifest.state.steps},
                  {"updates", manifest.state.updates},
                  {"loss_scale", std::move(scale)},
                  {"files", std::move(files)}};
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
    reject_manifest(source, "it is that of something else than a checkpoint");
  }
  const auto version = member<std::int64_t>(json, "version", source);
  if (version != kVersion) {
    fail(ErrorCode::kUnsupported,
         "{} is of version {}; this lockstep reads version {}: use the one that wrote it, or a "
         "later one",
         source, version, kVersion);
  }
  Manifest manifest;
  manifest.state.steps = member<std::int64_t>(json, "step", source);
  manifest.state.updates = member<std::int64_t>(json, "updates", source);
  const auto scale = member<Json>(json, "loss_scale", source);
  if (!scale.is_null()) {
    manifest.state.loss_scale = {.scale = member<double>(scale, "scale", source),
                                 .good_steps = member<std::int64_t>(scale, "good_steps", source)};
  }
  const auto files = member<Json>(json, "files", source);
  for (const auto& [name, file] : files.items()) {
    if (name != kStatesFile && name != kConfigFile && name != kTokenizerFile &&
        name != kResidualsFile) {
      reject_manifest(source, fmt::format("it lists '{}'", name));
    }
    manifest.files[name] = {.bytes = member<std::uint64_t>(file, "bytes", source),
                            .hash = member<std::string>(file, kHash.data(), source)};
  }
  for (const std::string_view name : {kStatesFile, kConfigFile}) {
    if (!manifest.files.contains(name))
      reject_manifest(source, fmt::format("it lists no '{}'", name));
  }
  const optim::LossScale loss_scale = manifest.state.loss_scale.value_or(optim::LossScale());
  if (manifest.state.updates < 0 || manifest.state.steps < manifest.state.updates ||
      loss_scale.good_steps < 0 || !std::isfinite(loss_scale.scale) || loss_scale.scale <= 0) {
    reject_manifest(source, "its numbers make no sense");
  }
  return manifest;
}

}  // namespace lockstep::train
