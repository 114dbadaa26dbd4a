// The folder of a run, created or reused, and locked while this process trains in it.
//
//   run/
//     config.toml      resolved settings, as of the last start
//     checkpoints/     train/checkpoint/checkpoint.h
//     data/            token files made from texts; data.staged/ until the run begins
//     metrics.jsonl, samples.jsonl, tensorboard/, report.html
//     facts.json, log.jsonl, ranks.json   train/observe/run_record.h
//     trace.json       where train.trace is on
//     algorithms.txt   those that a GPU chose by time (train/run/algorithm_record.h)
//     lock             held by the process that trains; says that the folder is a run's. Only its
//                      owner may open it: who can open it can hold it
#pragma once

#include <filesystem>
#include <optional>
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
  // A run that was refused before begin() has changed nothing in an earlier run's folder, and
  // leaves nothing behind where nothing was.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path data() const { return data_of(path_); }
  // The run is not refused any more: keeps its settings, and the data that was made for it.
  void begin(std::string_view toml);
  // What the destructor does; for a process that ends without it. The folder is not used any more.
  void leave() const noexcept;

  // Whether a run of lockstep made that folder.
  static bool is_run(const std::filesystem::path& path);
  // Whether a process trains in it now, by the lock. Nothing where this user may not open the lock.
  static std::optional<bool> is_locked(const std::filesystem::path& path);
  // Such folders: they may well be kept beside the texts it learns from.
  static data::NoTexts no_texts();

  static std::filesystem::path data_of(const std::filesystem::path& run) { return run / "data"; }
  // What is made for a run goes there until it begins.
  static std::filesystem::path staged_data_of(const std::filesystem::path& run) {
    return run / "data.staged";
  }
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
