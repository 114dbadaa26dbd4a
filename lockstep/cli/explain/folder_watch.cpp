#include "lockstep/cli/explain/folder_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

std::optional<FolderEvent::Kind> kind_of_event(std::uint32_t mask) {
  if (mask & IN_CREATE) return FolderEvent::Kind::kCreated;
  if (mask & IN_CLOSE_WRITE) return FolderEvent::Kind::kWritten;
  if (mask & IN_MOVED_FROM) return FolderEvent::Kind::kMovedFrom;
  if (mask & IN_MOVED_TO) return FolderEvent::Kind::kMovedTo;
  if (mask & IN_DELETE) return FolderEvent::Kind::kDeleted;
  return std::nullopt;
}

}  // namespace

FolderWatch::FolderWatch() : queue_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
  if (!queue_) fail_errno("cannot watch folders", errno);
}

void FolderWatch::watch(const std::filesystem::path& folder) {
  const int number =
      ::inotify_add_watch(queue_.get(), folder.c_str(),
                          IN_CREATE | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE);
  if (number < 0) fail_errno("cannot watch " + folder.string(), errno);
  folders_[number] = folder;
}

std::vector<FolderEvent> FolderWatch::take() {
  std::vector<FolderEvent> events;
  alignas(inotify_event) char buffer[16384];
  for (ssize_t bytes; (bytes = ::read(queue_.get(), buffer, sizeof buffer)) > 0;) {
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const auto kind = kind_of_event(event->mask);
      if (kind && event->len > 0) events.push_back({*kind, folders_[event->wd], event->name});
    }
  }
  return events;
}

}  // namespace lockstep::cli
