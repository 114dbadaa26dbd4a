// Texts into token files: documents, threads and cuts.
#include "lockstep/data/token_file/tokenize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "tests/data/temporary_folder.h"
#include "tests/paths.h"

namespace lockstep::data::tokenize_test {
namespace {

using fixtures::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr TokenId kEnd = 256;

// Bytes with an end of text.
class EndedBytes final : public Tokenizer {
 public:
  std::string_view kind() const override { return "byte"; }
  std::int64_t vocabulary() const override { return kEnd + 1; }
  std::optional<TokenId> special(Special which) const override {
    return which == Special::kEndOfText ? std::optional(kEnd) : std::nullopt;
  }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    bytes_->encode(text, ids);
  }
  void decode(std::span<const TokenId>, std::string&) const override {}
  std::string json() const override { return "{}"; }

 private:
  std::unique_ptr<Tokenizer> bytes_ = make_byte_tokenizer();
};

// One id per text that it is given, so that cuts show.
class WholeTexts final : public Tokenizer {
 public:
  std::string_view kind() const override { return "whole"; }
  std::int64_t vocabulary() const override { return 1 << 24; }
  std::optional<TokenId> special(Special) const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    ids.push_back(static_cast<TokenId>(text.size()));
  }
  void decode(std::span<const TokenId>, std::string&) const override {}
  std::string json() const override { return "{}"; }
};

struct Tokenized {
  std::vector<TokenId> ids;
  std::vector<std::uint64_t> ends;

  bool operator==(const Tokenized&) const = default;
  // As text, with | for an end of text.
  std::string text() const {
    std::string text;
    for (const TokenId id : ids) text += id == kEnd ? '|' : static_cast<char>(id);
    return text;
  }
};

Tokenized read(const std::filesystem::path& path) {
  const TokenFile file(path);
  Tokenized result;
  result.ids.resize(file.size());
  file.read(0, result.ids, file.vocabulary());
  for (std::uint64_t i = 0; i < file.documents(); ++i) result.ends.push_back(file.document(i).end);
  return result;
}

Tokenized tokenized(const TemporaryFolder& folder, std::vector<std::filesystem::path> paths,
                    const TokenizeOptions& options, const Tokenizer& tokenizer = EndedBytes()) {
  TokenWriter writer(folder / "out.tokens", {.vocabulary = tokenizer.vocabulary()});
  tokenize(list_text_files(paths), tokenizer, options, writer);
  writer.finish();
  return read(folder / "out.tokens");
}

// Lines of words, some blank.
std::string some_text(std::size_t bytes) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < bytes; ++i) {
    const std::uint32_t word = random_word(5, 0, i);
    text.append(word % 9, static_cast<char>('a' + word % 26));
    text += word % 7 == 0 ? "\n" : word % 41 == 0 ? "\n\n" : word % 5 == 0 ? ".\n" : " ";
  }
  return text;
}

TEST(Tokenizing, FilesOfFoldersComeByName) {
  const TemporaryFolder folder;
  folder.put("in/b.txt", "bee");
  folder.put("in/a/z.txt", "zet");
  folder.put("in/a.txt", "ay");
  folder.put("in/empty.txt", "");
  folder.put("in/.hidden/c.txt", "no");
  const auto single = folder.put("single", "x");
  const Tokenized result = tokenized(folder, {single, folder / "in"}, {});
  EXPECT_EQ(result.text(), "x|ay|zet|bee|");  // '.' stands before '/'
  EXPECT_THAT(result.ends, ElementsAre(2, 5, 9, 13));
}

TEST(Tokenizing, FoldersWithoutTextsAreLeftOut) {
  const TemporaryFolder folder;
  folder.put("in/a.txt", "ay");
  folder.put("in/deep/made/b.txt", "bee");
  folder.put("in/deep/made/deeper/c.txt", "see");
  folder.put("in/made", "a file of that name");
  const NoTexts none{.name = "a folder of something made",
                     .are_in = [](const auto& path) { return path.filename() == "made"; }};
  const auto names = [&](const char* path) {
    const std::filesystem::path paths[] = {folder / path};
    std::vector<std::string> found;
    for (const TextFile& file : list_text_files(paths, none)) {
      found.push_back(file.path.lexically_relative(folder / "in").string());
    }
    return found;
  };
  EXPECT_THAT(names("in"), ElementsAre("a.txt", "made"));
  EXPECT_THAT(names("in/deep/made/deeper"), ElementsAre("deep/made/deeper/c.txt"));
  try {
    names("in/deep/made");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is a folder of something made"));
  }
}

// Cuts the file before it reads.
class CutsItsText final : public Tokenizer {
 public:
  explicit CutsItsText(std::filesystem::path path) : path_(std::move(path)) {}
  std::string_view kind() const override { return "cut"; }
  std::int64_t vocabulary() const override { return 256; }
  std::optional<TokenId> special(Special) const override { return std::nullopt; }
  void encode(std::string_view text, std::vector<TokenId>& ids) const override {
    std::filesystem::resize_file(path_, 10);
    ids.push_back(static_cast<unsigned char>(text.back()));
  }
  void decode(std::span<const TokenId>, std::string&) const override {}
  std::string json() const override { return "{}"; }

 private:
  std::filesystem::path path_;
};

TEST(Tokenizing, ATextThatIsCutMeanwhileIsAnError) {
  const TemporaryFolder folder;
  const auto text = folder.put("a.txt", some_text(100'000));
  try {
    tokenized(folder, {text}, {}, CutsItsText(text));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.txt became shorter"));
  }
}

TEST(Tokenizing, AnyNumberOfThreadsWritesTheSame) {
  const TemporaryFolder folder;
  folder.put("in/large.txt", some_text(3'000'000));
  for (int i = 0; i < 50; ++i) folder.put(fmt::format("in/{}.txt", i), some_text(100 * i + 1));
  for (const DocumentKind kind : {DocumentKind::kFiles, DocumentKind::kBlankLines}) {
    TokenizeOptions options{.documents = kind};
    const Tokenized one = tokenized(folder, {folder / "in"}, options);
    EXPECT_GT(one.ends.size(), 50u);
    for (const int threads : {2, 3, 7}) {
      options.threads = threads;
      EXPECT_EQ(tokenized(folder, {folder / "in"}, options), one) << threads;
    }
  }
}

TEST(Tokenizing, OnlyTokenizersThatEndWordsAtLinesHaveTheirDocumentsCut) {
  const TemporaryFolder folder;
  const std::string text = some_text(1'000'000);
  const auto path = folder.put("a.txt", text);
  EXPECT_THAT(tokenized(folder, {path}, {.threads = 2}, WholeTexts()).ids,
              ElementsAre(text.size()));
  EXPECT_EQ(text_cut(EndedBytes()), TextCut::kBehindLines);
  EXPECT_EQ(text_cut(WholeTexts()), TextCut::kNowhere);
}

TEST(Tokenizing, CutsStandBehindALineBreakAloneBetweenWords) {
  const auto cut = [](std::string_view text, std::size_t from) {
    return safe_cut(text, from, TextCut::kBehindLines);
  };
  EXPECT_EQ(cut("ab\ncd", 0), 3u);
  EXPECT_EQ(cut("ab.\ncd", 1), 4u);
  EXPECT_EQ(cut("ab\ncd\nef", 4), 6u);
  EXPECT_EQ(cut("ab\ncd\nef", 3), 3u);
  for (const std::string_view text : {"", "a", "\n", "a\n", "\na", "a\n\nb", "a \nb", "a\n b",
                                      "a\r\nb", "a\n.b", "a\n\xc3\xa9", "\xc3\xa9\nb", "ab cd"}) {
    EXPECT_EQ(cut(text, 0), text.size()) << text;
  }
}

TEST(Tokenizing, CutsStandInFrontOfABlankAloneBetweenWords) {
  const auto cut = [](std::string_view text, std::size_t from) {
    return safe_cut(text, from, TextCut::kBeforeBlanks);
  };
  EXPECT_EQ(cut("ab cd", 0), 2u);
  EXPECT_EQ(cut("ab. cd", 1), 3u);
  EXPECT_EQ(cut("ab cd ef", 3), 5u);
  EXPECT_EQ(cut("ab cd ef", 2), 2u);
  for (const std::string_view text : {"", "a", " ", "a ", " a", "a  b", "a\n b", "a \nb", "a .b",
                                      "a \xc3\xa9", "\xc3\xa9 b", "ab\ncd"}) {
    EXPECT_EQ(cut(text, 0), text.size()) << text;
  }
  EXPECT_EQ(safe_cut("ab cd\nef", 0, TextCut::kNowhere), 8u);
}

// Every cut that is called safe, in a text of what patterns care about.
void expect_cuts_keep_ids(const Tokenizer& tokenizer, const std::string& text) {
  const TextCut cut = text_cut(tokenizer);
  ASSERT_NE(cut, TextCut::kNowhere);
  std::vector<TokenId> whole;
  tokenizer.encode(text, whole);
  int cuts = 0;
  for (std::size_t at = safe_cut(text, 0, cut); at < text.size();
       at = safe_cut(text, at + 1, cut), ++cuts) {
    std::vector<TokenId> parts;
    tokenizer.encode(std::string_view(text).substr(0, at), parts);
    tokenizer.encode(std::string_view(text).substr(at), parts);
    ASSERT_EQ(parts, whole) << "cut at " << at;
  }
  EXPECT_GT(cuts, 20);
}

TEST(Tokenizing, SafeCutsChangeNoIdOfABpe) {
  std::string text;
  constexpr std::string_view kParts[] = {
      "the", " ", "\n", "\n\n", "don't",         ".",  "!?",  "42", "a1",    "\r\n", "  ",
      "\t",  "é", "\n", "'s",   "<|endoftext|>", "\n", "xyz", "\n", "\u00a0"};
  for (std::uint64_t i = 0; i < 1500; ++i) {
    text += kParts[random_word(9, 0, i) % std::size(kParts)];
  }
  const std::string_view texts[] = {text};
  const auto gpt2 = train_bpe_tokenizer(texts, {.vocabulary = 300});
  expect_cuts_keep_ids(*gpt2, text);

  // The same merges behind Llama 3's pattern.
  auto json = nlohmann::json::parse(gpt2->json());
  json["pre_tokenizer"] = nlohmann::json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})");
  expect_cuts_keep_ids(*parse_tokenizer(json.dump(), "llama 3"), text);

  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  EXPECT_EQ(text_cut(*parse_tokenizer(json.dump(), "a blank first")), TextCut::kNowhere);
}

TEST(Tokenizing, SafeCutsChangeNoIdOfAUnigram) {
  std::ifstream fixture(in_sources("tests/fixtures/sentencepiece_tokenizers.json"));
  const auto bases = nlohmann::json::parse(fixture)["bases"];
  std::string text;
  constexpr std::string_view kParts[] = {
      "the", " ",       " ",      " ",  "fox",    "\n",   "</s>", "<unk>", "don't",
      ".",   "e\u0301", "  ",     "\t", "é",      "½",    "x",    "a",     " ",
      "---", "\u00a0",  "\u3000", "7",  "\u0301", "dogs", " ",    "▁",     "☃"};
  for (std::uint64_t i = 0; i < 1500; ++i) {
    text += kParts[random_word(9, 0, i) % std::size(kParts)];
  }
  for (const char* base : {"t5", "bytes"}) {
    auto json = bases[base];
    expect_cuts_keep_ids(*parse_tokenizer(json.dump(), base), text);
    for (const char* form : {"NFKC", "NFD", "StripAccents", "Lowercase"}) {
      json["normalizer"] = {{"type", form}};
      expect_cuts_keep_ids(*parse_tokenizer(json.dump(), form), text);
    }
    // What may see a cut.
    const auto cut_with = [&](const char* key, const nlohmann::json& part) {
      auto other = bases[base];
      other[key] = part;
      return text_cut(*parse_tokenizer(other.dump(), key));
    };
    const nlohmann::json metaspace = bases[base]["pre_tokenizer"];
    auto first = metaspace;
    first["prepend_scheme"] = "first";
    auto whole = metaspace;
    whole["split"] = false;
    EXPECT_EQ(cut_with("pre_tokenizer", metaspace), TextCut::kBeforeBlanks);
    EXPECT_EQ(cut_with("pre_tokenizer", first), TextCut::kNowhere);
    EXPECT_EQ(cut_with("pre_tokenizer", whole), TextCut::kNowhere);
    EXPECT_EQ(cut_with("pre_tokenizer", nullptr), TextCut::kNowhere);
    EXPECT_EQ(cut_with("normalizer", {{"type", "Prepend"}, {"prepend", "▁"}}), TextCut::kNowhere);
    EXPECT_EQ(
        cut_with("normalizer", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}),
        TextCut::kNowhere);
    EXPECT_EQ(cut_with("normalizer",
                       {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}}),
              TextCut::kNowhere);
    const auto cut_with_token = [&](const char* content, const char* flag) {
      const nlohmann::json token{
          {"id", 1}, {"content", "</s>"}, {"special", true}, {"normalized", false}};
      nlohmann::json other{{"id", 700}, {"content", content}, {"normalized", false}};
      other[flag] = true;
      return cut_with("added_tokens", nlohmann::json::array({token, other}));
    };
    EXPECT_EQ(cut_with_token("<x>", "special"), TextCut::kBeforeBlanks);
    EXPECT_EQ(cut_with_token("<x>", "lstrip"), TextCut::kBeforeBlanks);
    EXPECT_EQ(cut_with_token("x1y", "lstrip"), TextCut::kNowhere);
    EXPECT_EQ(cut_with_token("<x>", "rstrip"), TextCut::kNowhere);
    EXPECT_EQ(cut_with_token("<x>", "normalized"), TextCut::kNowhere);
    EXPECT_EQ(cut_with_token("< x>", "special"), TextCut::kNowhere);
  }
}

TEST(Tokenizing, BlankLinesPartDocuments) {
  const TemporaryFolder folder;
  const auto path = folder.put("a.txt", "\n\none\ntwo\n \t\n\nthree\r\n\r\nfour");
  const Tokenized result = tokenized(folder, {path}, {.documents = DocumentKind::kBlankLines});
  EXPECT_EQ(result.text(), "one\ntwo|three\r|four|");
}

TEST(Tokenizing, LinesOfJsonHaveTheTextInAField) {
  const TemporaryFolder folder;
  const auto path = folder.put("a.jsonl",
                               "{\"text\": \"a\\nb\", \"n\": 1}\n\n{\"n\": 2, \"text\": \"\"}\r\n"
                               "{\"text\": \"\\u00e9\"}");
  const TokenizeOptions options{.documents = DocumentKind::kJsonLines, .field = "text"};
  EXPECT_EQ(tokenized(folder, {path}, options).text(), "a\nb||\xc3\xa9|");
  const auto refusal = [&](std::string_view text) {
    try {
      tokenized(folder, {folder.put("b.jsonl", text)}, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal("{\"text\": \"a\"}\n\nnot"),
              AllOf(HasSubstr("b.jsonl:3: no JSON (at byte 2: "), HasSubstr("invalid literal")));
  EXPECT_THAT(refusal("{\"text\": \"\\ud800\"}"), HasSubstr("surrogate"));
  EXPECT_THAT(refusal("{\"text\": \"a\""), HasSubstr("unexpected end of input"));
  EXPECT_THAT(refusal("[1]"), AllOf(HasSubstr("b.jsonl:1:"), HasSubstr("no object")));
  EXPECT_THAT(refusal("{\"Text\": \"a\"}"), HasSubstr("without \"text\""));
  EXPECT_THAT(refusal("{\"text\": 5}"), HasSubstr("is not a string"));
}

TEST(Tokenizing, TheEndGoesToValidationAtALineBreak) {
  const TemporaryFolder folder;
  const std::string text = some_text(600'000);
  const auto path = folder.put("a.txt", text);
  const EndedBytes tokenizer;
  TokenWriter training(folder / "t.tokens", {.vocabulary = kEnd + 1});
  TokenWriter validation(folder / "v.tokens", {.vocabulary = kEnd + 1});
  std::vector<std::filesystem::path> paths = {path};
  std::uint64_t last = 0;
  tokenize(list_text_files(paths), tokenizer,
           {.threads = 2,
            .validation = 0.25,
            .progress =
                [&](const TokenizeProgress& progress) {
                  EXPECT_GT(progress.bytes_done, last);
                  last = progress.bytes_done;
                  EXPECT_EQ(progress.bytes, text.size());
                }},
           training, &validation);
  EXPECT_EQ(last, text.size());
  training.finish();
  validation.finish();
  std::string front = read(folder / "t.tokens").text();
  std::string back = read(folder / "v.tokens").text();
  EXPECT_NEAR(static_cast<double>(back.size()), 0.25 * static_cast<double>(text.size()), 100);
  ASSERT_EQ(front.back(), '|');
  front.pop_back();
  back.pop_back();
  EXPECT_EQ(front.back(), '\n');
  EXPECT_EQ(front + back, text);
}

TEST(Tokenizing, ATokenizersErrorNamesTheFile) {
  const TemporaryFolder folder;
  const auto tokenizer = make_character_tokenizer("ab\n");
  const auto good = folder.put("good.txt", "ab");
  const auto bad = folder.put("bad.txt", "abc");
  for (const int threads : {1, 3}) {
    try {
      tokenized(folder, {good, bad}, {.threads = threads}, *tokenizer);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("bad.txt"), HasSubstr("'c'")));
    }
  }
  EXPECT_THAT(folder.names(), SizeIs(2));  // no token file
}

}  // namespace
}  // namespace lockstep::data::tokenize_test
