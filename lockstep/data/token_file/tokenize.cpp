#include "lockstep/data/token_file/tokenize.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/data/token_file/json_lines.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kPiecesAhead = 4;  // for each thread, of the one that is written next

// A piece and what became of it.
struct Work {
  TextPiece piece;
  std::vector<TokenId> ids;
  std::vector<std::size_t> ends;  // of documents, in ids
  TextFindings findings;
  std::exception_ptr error;
  bool done = false;
};

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        end_of_text_(tokenizer.special(Special::kEndOfText)) {}

  void encode(Work& work) const {
    for (const TextPiece::Part& part : work.piece.parts) {
      if (options_.documents == DocumentKind::kJsonLines) {
        encode(text_of_json_line(part, options_.field), part, work);
      } else {
        encode(part.content, part, work);
      }
      part.text->check_whole();
      if (!part.ends_document) continue;
      if (end_of_text_) work.ids.push_back(*end_of_text_);
      work.ends.push_back(work.ids.size());
    }
  }

 private:
  void encode(std::string_view text, const TextPiece::Part& part, Work& work) const {
    const auto begin = static_cast<std::uint64_t>(part.content.data() - part.text->view().data());
    add_findings(text, part.text->path(), begin, work.findings);
    try {
      tokenizer_.encode(text, work.ids);
    } catch (const Error& error) {
      part.text->check_whole();
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
    try {
      while (threads_.size() < threads) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {  // as many as the system gives, if there is one
      if (threads_.empty()) throw;
    }
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

TokenizeSummary tokenize(std::span<const TextFile> files, const Tokenizer& tokenizer,
                         const TokenizeOptions& options, TokenWriter& training,
                         TokenWriter* validation) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  TextPieces pieces({files.begin(), files.end()},
                    {.documents = options.documents,
                     .cut = options.documents == DocumentKind::kJsonLines ? TextCut::kNowhere
                                                                          : text_cut(tokenizer),
                     .validation = validation != nullptr ? options.validation : 0});
  if (pieces.bytes() == 0) fail(ErrorCode::kInvalidArgument, "the inputs have no text to tokenize");
  const Encoder encoder(tokenizer, options);
  Pipeline pipeline(pieces, encoder, static_cast<std::size_t>(std::max(options.threads, 1)));
  TokenizeSummary summary;
  while (const std::optional<Work> work = pipeline.next()) {
    if (work->error) std::rethrow_exception(work->error);
    add_findings(work->findings, summary.findings);
    write(*work, work->piece.validation ? *validation : training);
    if (options.progress) {
      options.progress(
          {.bytes_done = work->piece.bytes_done, .bytes = pieces.bytes(), .seconds = seconds()});
    }
  }
  summary.bytes = pieces.bytes();
  summary.seconds = seconds();
  return summary;
}

}  // namespace lockstep::data
