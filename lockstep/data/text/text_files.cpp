#include "lockstep/data/text/text_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/mapped_file.h"
#include "lockstep/data/text/packed_text.h"
#include "lockstep/data/text/text_kind.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStandardInput = "-";
constexpr std::size_t kReadBytes = std::size_t{1} << 20;

class MappedText final : public Text {
 public:
  explicit MappedText(const fs::path& path) : file_(path) {
    path_ = path;
    view_ = file_.text();
  }
  void check_whole() const override { file_.check_whole(); }

 private:
  MappedFile file_;
};

class UnpackedText final : public Text {
 public:
  UnpackedText(const Text& packed, Packing packing)
      : file_(unpack(packed.view(), packing, packed.path())) {
    packed.check_whole();
    path_ = packed.path();
    view_ = file_.text();
  }

 private:
  MappedFile file_;
};

class StandardInputText final : public Text {
 public:
  StandardInputText() {
    std::size_t size = 0;
    for (;;) {
      text_.resize(size + kReadBytes);
      const ssize_t got = ::read(STDIN_FILENO, text_.data() + size, kReadBytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("cannot read standard input", errno);
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
    }
    text_.resize(size);
    path_ = "standard input";
    view_ = text_;
  }

 private:
  std::string text_;
};

std::shared_ptr<const Text> as_it_lies(const TextFile& file) {
  return file.text ? file.text : std::make_shared<MappedText>(file.path);
}

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

// Of the folder and all in it.
void add_folder(const fs::path& folder, const NoTexts& none, std::vector<TextFile>& files) {
  const auto is_left_out = [&](const fs::path& path) { return none.are_in && none.are_in(path); };
  if (is_left_out(folder)) {
    fail(ErrorCode::kInvalidArgument, "{} is {}; its files are not training text", folder.string(),
         none.name);
  }
  const std::size_t before = files.size();
  fs::path at = folder;
  try {
    for (auto entry = fs::recursive_directory_iterator(folder);
         entry != fs::recursive_directory_iterator(); ++entry) {
      at = entry->path();
      if (is_hidden(at) || (entry->is_directory() && is_left_out(at))) {
        entry.disable_recursion_pending();
      } else if (entry->is_regular_file()) {
        files.push_back({at, entry->file_size(), nullptr});
      }
    }
  } catch (const fs::filesystem_error& failure) {
    fail_errno(fmt::format("cannot read {}", at.string()), failure.code().value());
  }
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
            [](const TextFile& a, const TextFile& b) { return a.path.native() < b.path.native(); });
}

}  // namespace

std::vector<TextFile> list_text_files(std::span<const fs::path> paths, const NoTexts& none) {
  std::vector<TextFile> files;
  for (const fs::path& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    try {
      if (path == kStandardInput) {
        auto text = std::make_shared<StandardInputText>();
        files.push_back({path, text->view().size(), text});
      } else if (fs::is_directory(status)) {
        add_folder(path, none, files);
      } else if (fs::is_regular_file(status)) {
        files.push_back({path, fs::file_size(path), nullptr});
      } else {
        fail(ErrorCode::kInvalidArgument, "{} is not a text file or folder{}", path.string(),
             fs::exists(status) ? "" : ": it does not exist");
      }
    } catch (const fs::filesystem_error& failure) {
      fail_errno(fmt::format("cannot read {}", path.string()), failure.code().value());
    }
  }
  if (std::all_of(files.begin(), files.end(),
                  [](const TextFile& file) { return file.bytes == 0; })) {
    std::vector<std::string> names;
    for (const fs::path& path : paths) names.push_back(path.string());
    fail(ErrorCode::kInvalidArgument, "{} has no text: {}", fmt::join(names, ", "),
         files.empty() ? "no files" : "all files are empty");
  }
  return files;
}

std::shared_ptr<const Text> open_text(const TextFile& file) {
  std::shared_ptr<const Text> text = as_it_lies(file);
  const Packing packing = packing_of(text->view());
  if (packing != Packing::kNone) text = std::make_shared<UnpackedText>(*text, packing);
  refuse_unless_text(text->view(), text->path());
  return text;
}

std::vector<TextFile> unpack_texts(std::vector<TextFile> files) {
  for (TextFile& file : files) {
    if (packing_of(as_it_lies(file)->view()) == Packing::kNone) continue;
    file.text = open_text(file);
    file.bytes = file.text->view().size();
  }
  return files;
}

std::string text_files_hash(std::span<const TextFile> files) {
  ContentHash hash;
  for (const TextFile& file : files) {
    const std::shared_ptr<const Text> text = as_it_lies(file);
    hash.add(fmt::format("{}\n{} {}\n", fs::absolute(file.path).string(), text->view().size(),
                         fs::last_write_time(file.path).time_since_epoch().count()));
    hash.add(text->view());
    text->check_whole();
  }
  return hash.hex();
}

}  // namespace lockstep::data
