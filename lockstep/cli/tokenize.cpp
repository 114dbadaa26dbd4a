// lockstep tokenize: texts into a token file.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/mapped_file.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/data/token_file/json_lines.h"
#include "lockstep/data/token_file/tokenize.h"
#include "lockstep/data/tokenizers/choice.h"
#include "lockstep/train/run_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kSecondsBetweenLines = 0.2;

constexpr const char* kTokenizeExamples =
    R"(Inputs are files, folders (with all that is in them, by name) and - for standard input, in
UTF-8; what is packed by gzip or zstd is unpacked. Each file is a document; with --jsonl each line,
with --blank-lines what stands between blank lines.
Behind each document comes the tokenizer's end of text, where it has one. The ids do not depend on
the number of threads. The tokenizer is written beside the tokens, as tokenizer.json.

Examples:
  lockstep tokenize shakespeare.txt -o data/shakespeare.tokens --tokenizer character
  lockstep tokenize corpus/ -o data/corpus.tokens --tokenizer bpe --vocabulary 8192
  lockstep tokenize web.jsonl --jsonl text -o data/web.tokens --tokenizer gpt2/tokenizer.json
  lockstep tokenize corpus/*.txt.gz -o data/train.bin --format nanogpt --tokenizer gpt2/

byte        each byte is a token (the default)
character   each character of the inputs
bpe         byte-level BPE, learned from the inputs
PATH        a tokenizer.json, or a folder with one

lockstep    OUT knows vocabulary, documents and tokenizer (the default); call it NAME.tokens
nanogpt     OUT holds ids of 2 bytes and nothing else; its name must end in .bin
llm.c       OUT has llm.c's header; call it NAME.bin
megatron    OUT.bin and OUT.idx)";

struct TokenizeFlags {
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer = "byte";
  std::string vocabulary;
  std::string field;
  bool blank_lines = false;
  std::string format = "lockstep";
  int threads = 0;
  double validation = 0;
};

data::TokenFormat token_format(const std::string& text) {
  constexpr data::TokenFormat kAll[] = {data::TokenFormat::kLockstep, data::TokenFormat::kNanoGpt,
                                        data::TokenFormat::kLlmC, data::TokenFormat::kMegatron};
  std::vector<std::string_view> names;
  for (const data::TokenFormat format : kAll) {
    if (name(format) == text) return format;
    names.push_back(name(format));
  }
  fail(ErrorCode::kInvalidArgument, "unknown format '{}'{}; expected one of {}", text,
       did_you_mean(text, names), fmt::join(names, ", "));
}

// Where the end of the text goes that is held back.
fs::path validation_path(const fs::path& output) {
  fs::path path = output;
  return path.replace_extension(".validation" + output.extension().string());
}

fs::path tokenizer_path_of(const fs::path& output) {
  return output.parent_path() / "tokenizer.json";
}

bool holds_tokens(const fs::path& path) {
  try {
    const data::TokenFile tokens(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_one_of(const fs::path& path, const std::vector<fs::path>& others) {
  return std::any_of(others.begin(), others.end(), [&](const fs::path& other) {
    std::error_code none;
    return fs::equivalent(path, other, none);
  });
}

// The texts of the inputs. A folder may hold what earlier calls made, tokens and their tokenizer:
// they are no text. A text itself is never written over.
std::vector<data::TextFile> files_of_inputs(const TokenizeFlags& flags, data::TokenFormat format) {
  const fs::path output = flags.output;
  std::vector<fs::path> tokens = data::token_paths(output, format);
  if (flags.validation > 0) {
    const auto more = data::token_paths(validation_path(output), format);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  const std::vector<fs::path> tokenizer = {tokenizer_path_of(output)};
  const std::vector<fs::path> paths(flags.inputs.begin(), flags.inputs.end());
  std::vector<data::TextFile> files;
  std::vector<std::string> left_out;
  for (data::TextFile& file : data::list_text_files(paths, train::RunFolder::no_texts())) {
    const bool named = std::find(paths.begin(), paths.end(), file.path) != paths.end();
    const bool is_tokens = is_one_of(file.path, tokens);
    const bool is_tokenizer = is_one_of(file.path, tokenizer);
    const bool was_made = is_tokenizer || ((is_tokens || file.path.extension() == ".tokens") &&
                                           holds_tokens(file.path));
    if (!named && was_made) {
      left_out.push_back(file.path.string());
    } else if (is_tokens || is_tokenizer) {
      fail(ErrorCode::kInvalidArgument,
           "{} is an input, and the {} would be written over it; give --output another name, or "
           "one in another folder",
           file.path.string(), is_tokens ? "tokens" : "tokenizer");
    } else {
      files.push_back(std::move(file));
    }
  }
  if (!left_out.empty()) {
    fmt::print(stderr, "skipped, because they hold tokens or a tokenizer: {}\n",
               fmt::join(left_out, ", "));
  }
  if (files.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} has no text, only tokens", fmt::join(flags.inputs, ", "));
  }
  return files;
}

std::shared_ptr<const data::Tokenizer> tokenizer_of_flags(
    const TokenizeFlags& flags, const std::vector<data::TextFile>& files) {
  if (!flags.vocabulary.empty() && flags.tokenizer != "bpe") {
    fail(ErrorCode::kInvalidArgument,
         "--vocabulary is the size of a learned bpe; it needs --tokenizer bpe");
  }
  const std::uint64_t vocabulary = flags.vocabulary.empty()
                                       ? static_cast<std::uint64_t>(data::BpeTraining{}.vocabulary)
                                       : parse_count("--vocabulary", flags.vocabulary);
  data::LearningTexts texts;
  if (data::is_learned(flags.tokenizer)) texts.add(files, flags.field);
  auto tokenizer =
      data::choose_tokenizer(flags.tokenizer, static_cast<std::int64_t>(vocabulary), texts.views());
  texts.check_whole();
  return tokenizer;
}

void make_folder_of(const fs::path& file) {
  std::error_code problem;
  if (file.has_parent_path()) fs::create_directories(file.parent_path(), problem);
  if (!problem) return;
  fail(ErrorCode::kSystem, "cannot make the folder of {}: {}", file.string(), problem.message());
}

// Whether the tokens at `path` were made by the tokenizer of that hash.
bool was_made_by(const fs::path& path, const std::string& hash) {
  try {
    return data::TokenFile(path).tokenizer_hash() == hash;
  } catch (const Error&) {
    return false;
  }
}

// Where the tokenizer goes. One that is there already is written over only where it belongs to the
// tokens that are written over as well: others in the folder would lose theirs.
fs::path path_for_tokenizer(const fs::path& output, const std::string& json) {
  fs::path path = tokenizer_path_of(output);
  check_can_write(path);
  std::error_code none;
  if (!fs::exists(path, none)) return path;
  const MappedFile there(path);
  if (there.text() == json || was_made_by(output, content_hash(there.text()))) return path;
  fail(ErrorCode::kInvalidArgument,
       "{} is a different tokenizer from the one that would be saved beside {}; write the tokens "
       "to another folder, or remove it",
       path.string(), output.string());
}

// One line that is written over, on a terminal.
class ProgressLine {
 public:
  void show(const data::TokenizeProgress& progress) {
    if (!on_terminal_ || progress.seconds < shown_ + kSecondsBetweenLines) return;
    shown_ = progress.seconds;
    const auto done = static_cast<double>(progress.bytes_done);
    const auto all = static_cast<double>(progress.bytes);
    fmt::print(stderr, "\r\x1b[K{:3.0f} %  {} of {}  {}  {:.0f} s left", 100 * done / all,
               format_bytes(done), format_bytes(all), format_bytes_per_second(done / shown_),
               (all - done) * shown_ / done);
  }
  ~ProgressLine() {
    if (shown_ > 0) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool on_terminal_ = ::isatty(STDERR_FILENO) == 1;
  double shown_ = 0;
};

void print_summary(const data::TokenizeSummary& summary, const data::TokenWriter& training,
                   const data::TokenWriter* validation, const data::Tokenizer& tokenizer) {
  const std::uint64_t tokens =
      training.tokens() + (validation != nullptr ? validation->tokens() : 0);
  TextTable table("lrr");
  table.row({"", "documents", "tokens"});
  const auto add = [&](const data::TokenWriter& writer) {
    table.row(
        {writer.path().string(), format_count(writer.documents()), format_count(writer.tokens())});
  };
  add(training);
  if (validation != nullptr) add(*validation);
  fmt::print("{}", table.text(""));
  const auto bytes = static_cast<double>(summary.bytes);
  fmt::print("{} tokenizer of {} ids; {} of text, {:.3f} bytes per token, {}, {}\n",
             tokenizer.kind(), format_count(static_cast<std::uint64_t>(tokenizer.vocabulary())),
             format_bytes(bytes), tokens > 0 ? bytes / static_cast<double>(tokens) : 0,
             format_bytes_per_second(bytes / summary.seconds),
             format_si(static_cast<double>(tokens) / summary.seconds, "tokens/s"));
}

void tokenize_inputs(const TokenizeFlags& flags) {
  if (!flags.field.empty() && flags.blank_lines) {
    fail(ErrorCode::kInvalidArgument,
         "with --jsonl each line is a document; leave out --blank-lines");
  }
  const fs::path output = flags.output;
  data::TokenWriterSetup setup;
  setup.format = token_format(flags.format);
  const std::vector<data::TextFile> files = files_of_inputs(flags, setup.format);
  make_folder_of(output);
  check_can_write(output);
  const auto tokenizer = tokenizer_of_flags(flags, files);
  const std::string json = tokenizer->json();
  const fs::path tokenizer_path = path_for_tokenizer(output, json);
  setup.vocabulary = tokenizer->vocabulary();
  setup.tokenizer_hash = content_hash(json);

  data::TokenWriter training(output, setup);
  std::optional<data::TokenWriter> validation;
  if (flags.validation > 0) validation.emplace(validation_path(output), setup);
  data::TokenWriter* const validation_writer = validation ? &*validation : nullptr;
  data::TokenizeOptions options;
  options.documents = !flags.field.empty() ? data::DocumentKind::kJsonLines
                      : flags.blank_lines  ? data::DocumentKind::kBlankLines
                                           : data::DocumentKind::kFiles;
  options.field = flags.field;
  options.threads = flags.threads > 0 ? flags.threads : CpuSet::of_this_thread().count();
  options.validation = flags.validation;
  data::TokenizeSummary summary;
  {
    ProgressLine line;
    options.progress = [&line](const data::TokenizeProgress& progress) { line.show(progress); };
    summary = data::tokenize(files, *tokenizer, options, training, validation_writer);
  }
  training.finish();
  if (validation) validation->finish();
  write_file(tokenizer_path, json);
  if (summary.findings.any()) {
    fmt::print(stderr, "lockstep: warning: {}\n", printable(describe(summary.findings)));
  }
  print_summary(summary, training, validation_writer, *tokenizer);
}

}  // namespace

void add_tokenize(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Turn texts into a token file");
  command->footer(kTokenizeExamples);
  command->add_option("inputs", flags->inputs, "files, folders, or -")
      ->required()
      ->type_name("INPUT ...");
  command->add_option("-o,--output", flags->output, "the token file to write")
      ->required()
      ->type_name("OUT");
  command->add_option("--tokenizer", flags->tokenizer, "byte, character, bpe or a path")
      ->capture_default_str();
  command->add_option("--vocabulary", flags->vocabulary, "vocabulary size of a learned bpe (8192)");
  command->add_option("--jsonl", flags->field, "inputs are JSON lines with the text in this field")
      ->type_name("FIELD");
  command->add_flag("--blank-lines", flags->blank_lines, "blank lines separate documents");
  command->add_option("--format", flags->format, "lockstep, nanogpt, llm.c or megatron")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "threads to tokenize with (all allowed cores)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--validation", flags->validation,
                   "the fraction at the end that goes to OUT.validation.*, like 0.1")
      ->check(CLI::Range(0.0, 0.9));
  command->callback([flags, &exit_code] {
    tokenize_inputs(*flags);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
