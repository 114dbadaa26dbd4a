#include "lockstep/data/text/text_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;
  std::size_t offset;
  std::string_view name;
  std::string_view advice;
};

constexpr std::string_view kConvert16 = "convert it by iconv -f UTF-16 -t UTF-8";
constexpr std::string_view kConvert32 = "convert it by iconv -f UTF-32 -t UTF-8";
constexpr std::string_view kUnpack = "unpack it";
constexpr std::string_view kExtract = "extract its text";
// UTF-32 before UTF-16, which begins with the same bytes.
constexpr Signature kSignatures[] = {{"\xff\xfe\0\0"sv, 0, "UTF-32", kConvert32},
                                     {"\0\0\xfe\xff"sv, 0, "UTF-32", kConvert32},
                                     {"\xff\xfe"sv, 0, "UTF-16", kConvert16},
                                     {"\xfe\xff"sv, 0, "UTF-16", kConvert16},
                                     {"PK\x03\x04"sv, 0, "a zip archive", kUnpack},
                                     {"\xfd\x37zXZ\0"sv, 0, "packed by xz", kUnpack},
                                     {"1AY&SY"sv, 4, "packed by bzip2", kUnpack},
                                     {"\x04\x22\x4d\x18"sv, 0, "packed by lz4", kUnpack},
                                     {"7z\xbc\xaf\x27\x1c"sv, 0, "a 7z archive", kUnpack},
                                     {"ustar"sv, 257, "a tar archive", kUnpack},
                                     {"%PDF-"sv, 0, "a PDF", kExtract},
                                     {"ARROW1\0\0"sv, 0, "an Arrow file", kExtract},
                                     {"\x89HDF\r\n"sv, 0, "an HDF5 file", kExtract},
                                     {"\x93NUMPY"sv, 0, "a NumPy array", kExtract},
                                     {"SQLite format 3\0"sv, 0, "an SQLite database", kExtract},
                                     {"\x89PNG\r\n"sv, 0, "a PNG picture", kExtract},
                                     {"\xff\xd8\xff"sv, 0, "a JPEG picture", kExtract},
                                     {"\x7f"
                                      "ELF"sv,
                                      0, "a program", "name a text"}};
constexpr std::string_view kParquet = "PAR1";  // at both ends

// ASCII in UTF-16 has a NUL in every other byte.
bool looks_like_utf16(std::string_view bytes) {
  constexpr std::size_t kLooked = 4096;
  const std::string_view front = bytes.substr(0, kLooked);
  std::array<std::size_t, 2> nul{};
  for (std::size_t i = 0; i < front.size(); ++i) nul[i % 2] += front[i] == '\0' ? 1 : 0;
  const std::size_t most = std::max(nul[0], nul[1]);
  return bytes.size() >= 4 && bytes.size() % 2 == 0 && std::min(nul[0], nul[1]) == 0 &&
         most * 10 >= front.size() / 2 * 4;
}

constexpr bool is_control(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return (byte < 0x20 && letter != '\t' && letter != '\n' && letter != '\r' && letter != '\f') ||
         byte == 0x7f;
}

std::string count_of(std::uint64_t number, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", number, number == 1 ? one : many);
}

}  // namespace

void refuse_unless_text(std::string_view bytes, const std::filesystem::path& source) {
  const auto refuse = [&](std::string_view name, std::string_view advice) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, where a text in UTF-8 was expected; {}",
         source.string(), name, advice);
  };
  for (const Signature& signature : kSignatures) {
    if (bytes.size() >= signature.offset &&
        bytes.substr(signature.offset).starts_with(signature.bytes)) {
      refuse(signature.name, signature.advice);
    }
  }
  if (bytes.size() > 8 && bytes.starts_with(kParquet) && bytes.ends_with(kParquet)) {
    refuse("a Parquet table", kExtract);
  }
  if (looks_like_utf16(bytes)) refuse("UTF-16", kConvert16);
}

void add_findings(std::string_view text, const std::filesystem::path& source, std::uint64_t begin,
                  TextFindings& findings) {
  const auto find = [&](std::uint64_t& count, std::size_t at) {
    if (!findings.any()) {
      findings.first_in = source.string();
      findings.first_at = begin + at;
    }
    ++count;
  };
  for (std::size_t at = 0; at < text.size();) {
    if (is_ascii(text[at])) {
      if (is_control(text[at])) find(text[at] == '\0' ? findings.nul : findings.control, at);
      ++at;
      continue;
    }
    const std::size_t bytes = decode_utf8(text.substr(at)).bytes;
    if (bytes == 0) find(findings.not_utf8, at);
    at += std::max<std::size_t>(bytes, 1);
  }
}

void add_findings(const TextFindings& later, TextFindings& findings) {
  if (!findings.any()) {
    findings.first_in = later.first_in;
    findings.first_at = later.first_at;
  }
  findings.nul += later.nul;
  findings.control += later.control;
  findings.not_utf8 += later.not_utf8;
}

std::string describe(const TextFindings& findings) {
  std::vector<std::string> kinds;
  if (findings.nul > 0) kinds.push_back(count_of(findings.nul, "NUL byte", "NUL bytes"));
  if (findings.control > 0) {
    kinds.push_back(count_of(findings.control, "control character", "control characters"));
  }
  if (findings.not_utf8 > 0) {
    kinds.push_back(
        count_of(findings.not_utf8, "byte that is no UTF-8", "bytes that are no UTF-8"));
  }
  return fmt::format(
      "the text has {} (the first is byte {} of {}), which are learned like all else",
      fmt::join(kinds, ", "), findings.first_at, findings.first_in);
}

}  // namespace lockstep::data
