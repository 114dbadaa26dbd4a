#include "lockstep/data/token_file/tokenize.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kPiecesAhead = 4;  // for each thread, of the one that is written next

// A piece and what became of it.
struct Work {
  TextPiece piece;
  std::vector<TokenId> ids;
  std::vector<std::size_t> ends;  // of documents, in ids
  std::exception_ptr error;
  bool done = false;
};

// Why a text is no JSON.
std::string json_problem(std::string_view text) {
  try {
    const auto parsed = nlohmann::json::parse(text);
    return "";
  } catch (const nlohmann::json::parse_error& error) {
    // Behind "[json.exception.parse_error.101] parse error at line 1, column 3: ".
    const std::string_view all = error.what();
    const std::size_t reason = all.find(": ");
    return fmt::format("at byte {}: {}", error.byte,
                       reason == std::string_view::npos ? all : all.substr(reason + 2));
  }
}

std::string text_of_json_line(const TextPiece::Part& part, const std::string& field) {
  const auto object = nlohmann::json::parse(part.content, nullptr, false);
  const auto complain = [&](const std::string& what) {
    fail(ErrorCode::kInvalidArgument,
         "{}:{}: {}, where a JSON object with a text as \"{}\" was "
         "expected",
         part.text->path().string(), part.line, what, field);
  };
  if (object.is_discarded()) complain(fmt::format("no JSON ({})", json_problem(part.content)));
  if (!object.is_object()) complain("no object");
  const auto found = object.find(field);
  if (found == object.end()) complain(fmt::format("an object without \"{}\"", field));
  if (!found->is_string()) complain(fmt::format("\"{}\" is not a string", field));
  return found->get<std::string>();
}

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        end_of_text_(tokenizer.special(Special::kEndOfText)) {}

  void encode(Work& work) const {
    for (const TextPiece::Part& part : work.piece.parts) {
      if (options_.documents == DocumentKind::kJsonLines) {
        encode(text_of_json_line(part, options_.field), part, work.ids);
      } else {
        encode(part.content, part, work.ids);
      }
      if (!part.ends_document) continue;
      if (end_of_text_) work.ids.push_back(*end_of_text_);
      work.ends.push_back(work.ids.size());
    }
  }

 private:
  void encode(std::string_view text, const TextPiece::Part& part, std::vector<TokenId>& ids) const {
    try {
      tokenizer_.encode(text, ids);
    } catch (const Error& error) {
      const auto begin = part.content.data() - part.text->view().data();
      fail(error.code(), "{}, in what begins at its byte {}: {}", part.text->path().string(), begin,
           error.what());
    }
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  std::optional<TokenId> end_of_text_;
};

// Pieces go in and come out in the order of the text; between, threads work on any of them.
class Pipeline {
 public:
  Pipeline(TextPieces& pieces, const Encoder& encoder, std::size_t threads)
      : pieces_(pieces), encoder_(encoder), capacity_(threads * kPiecesAhead) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
  }
  ~Pipeline() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // The next piece, done; nothing behind the last.
  std::optional<Work> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return works_.empty() ? exhausted_ : works_.front().done; });
    if (works_.empty()) return std::nullopt;
    Work work = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return work;
  }

 private:
  void serve() {
    while (Work* work = begin()) {
      try {
        if (!work->error) encoder_.encode(*work);
      } catch (...) {
        work->error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        work->done = true;
      }
      changed_.notify_all();
    }
  }

  // A piece to work on; nullptr where there are no more. Its place stays while others come and go.
  Work* begin() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closing_ || exhausted_ || works_.size() < capacity_; });
    if (closing_ || exhausted_) return nullptr;
    Work work;
    try {
      exhausted_ = !pieces_.next(work.piece);
    } catch (...) {  // a file that can no longer be read
      work.error = std::current_exception();
      exhausted_ = true;
      works_.push_back(std::move(work));
      return &works_.back();
    }
    if (!exhausted_) {
      works_.push_back(std::move(work));
      return &works_.back();
    }
    lock.unlock();
    changed_.notify_all();
    return nullptr;
  }

  TextPieces& pieces_;
  const Encoder& encoder_;
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> works_;
  bool exhausted_ = false;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

void write(const Work& work, TokenWriter& writer) {
  const std::span<const TokenId> ids(work.ids);
  std::size_t begin = 0;
  for (const std::size_t end : work.ends) {
    writer.append(ids.subspan(begin, end - begin));
    writer.end_document();
    begin = end;
  }
  writer.append(ids.subspan(begin));
}

}  // namespace

std::vector<std::string> json_line_texts(std::span<const TextFile> files,
                                         const std::string& field) {
  std::vector<std::string> texts;
  TextPieces pieces({files.begin(), files.end()}, {.documents = DocumentKind::kJsonLines});
  for (TextPiece piece; pieces.next(piece);) {
    for (const TextPiece::Part& part : piece.parts) texts.push_back(text_of_json_line(part, field));
  }
  return texts;
}

TokenizeSummary tokenize(std::span<const TextFile> files, const Tokenizer& tokenizer,
                         const TokenizeOptions& options, TokenWriter& training,
                         TokenWriter* validation) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  TextPieces pieces({files.begin(), files.end()},
                    {.documents = options.documents,
                     .cut_documents = options.documents != DocumentKind::kJsonLines &&
                                      cuts_words_at_lines(tokenizer),
                     .validation = validation != nullptr ? options.validation : 0});
  if (pieces.bytes() == 0) fail(ErrorCode::kInvalidArgument, "the inputs have no text to tokenize");
  const Encoder encoder(tokenizer, options);
  Pipeline pipeline(pieces, encoder, static_cast<std::size_t>(std::max(options.threads, 1)));
  while (const std::optional<Work> work = pipeline.next()) {
    if (work->error) std::rethrow_exception(work->error);
    write(*work, work->piece.validation ? *validation : training);
    if (options.progress) {
      options.progress(
          {.bytes_done = work->piece.bytes_done, .bytes = pieces.bytes(), .seconds = seconds()});
    }
  }
  return {.bytes = pieces.bytes(), .seconds = seconds()};
}

}  // namespace lockstep::data
