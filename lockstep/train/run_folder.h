// The folder of a run, created or reused, and locked while this process trains in it.
//
//   run/
//     config.toml      resolved settings, as of the last start
//     checkpoints/     train/checkpoint/checkpoint.h
//     data/            token files made from texts
//     metrics.jsonl, samples.jsonl, tensorboard/, report.html
//     trace.json       where train.trace is on
//     lock             held by the process that trains; says that the folder is a run's
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/base/file/fd.h"
#include "lockstep/data/text/text_files.h"

namespace lockstep::train {

class RunFolder {
 public:
  // Throws Error(kInvalidArgument) for a folder with files that lockstep did not write, for
  // something that is not a folder, and if another process trains in it; Error(kSystem) if it
  // cannot be created or written.
  explicit RunFolder(const std::filesystem::path& path);
  // Without write_config(), removes a folder that did not exist before.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path data() const { return data_of(path_); }
  void write_config(std::string_view toml);

  // Recognizes run folders, which may be inside a folder of training text.
  static data::NoTexts no_texts();

  static std::filesystem::path data_of(const std::filesystem::path& run) { return run / "data"; }
  static std::filesystem::path config_of(const std::filesystem::path& run) {
    return run / "config.toml";
  }

 private:
  std::filesystem::path path_;
  bool was_there_ = false;  // the folder
  bool is_new_ = false;     // what is in it
  UniqueFd lock_;
};

}  // namespace lockstep::train
