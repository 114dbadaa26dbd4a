#include "lockstep/data/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/data/unicode/utf8.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kLongestPattern = 1 << 16;
// The famous patterns take a few steps at each word, however long it is.
constexpr std::uint32_t kMostSteps = 1'000'000;
constexpr std::uint32_t kMostHeapKibibytes = 64 * 1024;
constexpr std::size_t kJitStackStart = std::size_t{32} * 1024;
constexpr std::size_t kJitStackMost = std::size_t{1024} * 1024;

template <auto free>
struct Freed {
  template <class T>
  void operator()(T* what) const {
    free(what);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;

// What a thread needs to match with; any pattern can use it.
struct MatchWorkspace {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};

  MatchWorkspace() {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), kMostSteps);
    pcre2_set_depth_limit(context.get(), kMostSteps);
    pcre2_set_heap_limit(context.get(), kMostHeapKibibytes);
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// PCRE2's own \s has U+180E as well.
std::string with_unicode_spaces(std::string_view pattern) {
  std::string result;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      result += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      result += "\\p{wspace}";
    } else if (escaped == 'S') {
      result += "\\P{wspace}";
    } else {
      result += '\\';
      result += escaped;
    }
  }
  return result;
}

}  // namespace

struct Pattern::Compiled {
  Code code;
};

Pattern::Pattern(std::string_view regular_expression, std::string place)
    : place_(std::move(place)) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kLongestPattern);
  const std::string pattern = with_unicode_spaces(regular_expression);
  int error = 0;
  std::size_t at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                          &at, context.get()));
  if (!code) {
    fail(ErrorCode::kProtocol, "{}: invalid regular expression: {} (at character {} of it)", place_,
         pcre2_message(error), at);
  }
  // Where it cannot be compiled to machine code it is interpreted.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  compiled_ = std::make_shared<const Compiled>(Compiled{std::move(code)});
}

Pattern Pattern::literal(std::string_view text, std::string place) {
  std::string escaped;
  for (const char byte : text) {
    const bool plain = !is_ascii(byte) || (byte >= '0' && byte <= '9') ||
                       (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
    if (plain) {
      escaped += byte;
    } else {
      escaped += fmt::format("\\x{{{:x}}}", static_cast<unsigned>(byte));
    }
  }
  return {escaped, std::move(place)};
}

void Pattern::for_each_match(std::string_view text,
                             const std::function<void(std::size_t, std::size_t)>& visit) const {
  thread_local const MatchWorkspace workspace;
  std::size_t from = 0;
  std::size_t last_end = SIZE_MAX;
  while (from <= text.size()) {
    const int count =
        pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    from, PCRE2_NO_UTF_CHECK, workspace.data.get(), workspace.context.get());
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0) {
      fail(ErrorCode::kInvalidArgument,
           "{}: the pattern cannot be matched from byte {} of a text on: {}; a pattern whose parts "
           "can match the same text in many ways takes too long",
           place_, from, pcre2_message(count));
    }
    const std::size_t* ends = pcre2_get_ovector_pointer(workspace.data.get());
    const std::size_t begin = ends[0];
    const std::size_t end = ends[1];
    if (begin < from || end < begin) {  // \K can do that
      fail(ErrorCode::kInvalidArgument, "{}: a match of the pattern ends before it begins", place_);
    }
    if (begin == end) {
      if (begin != last_end) visit(begin, end);
      if (end == text.size()) return;
      from = end + decode_valid_utf8(text.data() + end).bytes;
    } else {
      visit(begin, end);
      from = end;
    }
    last_end = end;
  }
}

}  // namespace lockstep::data
