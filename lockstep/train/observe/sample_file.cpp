#include "lockstep/train/observe/sample_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/file/append_file.h"
#include "lockstep/base/log.h"
#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/step_lines.h"

namespace lockstep::train {
namespace {

std::filesystem::path samples_path(const std::filesystem::path& folder) {
  return folder / "samples.jsonl";
}

std::optional<Sample> parse_sample_line(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer() ||
      !json.contains("text") || !json["text"].is_string()) {
    return std::nullopt;
  }
  return Sample{.step = json["step"].get<std::int64_t>(), .text = json["text"].get<std::string>()};
}

// JSON is UTF-8: what is none becomes U+FFFD.
std::string sample_line(std::int64_t step, const std::string& text) {
  const nlohmann::ordered_json json{{"step", step}, {"text", text}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

// Makes the file with the first sample: many runs have none.
class SampleFile : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    path_ = samples_path(facts.folder);
    keep_steps_before(facts.first_step, path_, [](const std::string& line) {
      const auto sample = parse_sample_line(line);
      return sample ? std::optional(sample->step) : std::nullopt;
    });
    file_ = AppendFile();
    failed_ = false;
  }

  void sample(std::int64_t step, const std::string& text) override {
    if (failed_) return;
    try {
      if (!file_) file_ = AppendFile(path_);
      file_.append(sample_line(step, text));
    } catch (const Error& error) {
      log_warn("{}; samples are not saved from step {} on", error.what(), step);
      failed_ = true;
    }
  }

  void step(const StepRecord&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd&) override { file_ = AppendFile(); }

 private:
  std::filesystem::path path_;
  AppendFile file_;
  bool failed_ = false;
};

}  // namespace

std::vector<Sample> read_samples(const std::filesystem::path& folder, std::int64_t first_step) {
  std::vector<Sample> samples;
  std::error_code none;
  if (!std::filesystem::is_regular_file(samples_path(folder), none)) return samples;
  std::ifstream file(samples_path(folder), std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    auto sample = parse_sample_line(line);
    if (sample && sample->step < first_step) samples.push_back(*std::move(sample));
  }
  return samples;
}

std::unique_ptr<RunObserver> make_sample_file() { return std::make_unique<SampleFile>(); }

}  // namespace lockstep::train
