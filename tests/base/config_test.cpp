#include "lockstep/base/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

enum class Color { kRed, kGreen, kBlue };
constexpr std::string_view kColorNames[] = {"red", "green", "blue"};

struct Options {
  bool check = true;
  int workers = 4;
  double rate = 1e-3;
  std::size_t window = 512 << 10;
  std::chrono::nanoseconds timeout = 5min;
  std::optional<std::chrono::nanoseconds> spin;
  std::string directory = "/tmp";
  std::vector<std::string> hosts;
  Color color = Color::kGreen;
  std::string nested = "auto";
  bool reshard = false;
  Color shade = Color::kGreen;
};

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    config.bind("test.check", options.check, "Checks.");
    config.bind("test.workers", options.workers, "Workers.", {.min = 1, .max = 64});
    config.bind("test.rate", options.rate, "Rate.", {.min = 0, .max = 10});
    config.bind("test.window", options.window, "Window.", {.min = 4096});
    config.bind("test.timeout", options.timeout, "Timeout.", 1ms);
    config.bind("test.spin", options.spin, "Spin.");
    config.bind("test.directory", options.directory, "Directory.");
    config.bind("test.hosts", options.hosts, "Hosts.");
    config.bind("test.color", options.color, kColorNames, "Color.");
    config.bind("test.algorithm.all_reduce", options.nested, "Algorithm.");
  }

  // The message of the error that `act` throws.
  template <class F>
  static std::string error_of(F act) {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    ADD_FAILURE() << "no error was thrown";
    return {};
  }
  std::string set_error(std::string_view text) {
    return error_of([&] { config.set(text); });
  }
  std::string toml_error(std::string_view text) {
    return error_of([&] { config.read_toml(text, "job.toml"); });
  }

  Options options;
  Config config;
};

// A variable of the environment for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST_F(ConfigTest, ReadsEveryTypeFromToml) {
  config.read_toml(R"(
    [test]
    check = false
    workers = 8
    rate = 6e-4
    window = "64KiB"
    timeout = "1.5s"
    spin = "20us"
    directory = "/var/tmp"
    hosts = ["10.0.0.1", "10.0.0.2"]
    color = "blue"
    algorithm.all_reduce = "ring"
  )",
                   "job.toml");
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.workers, 8);
  EXPECT_EQ(options.rate, 6e-4);
  EXPECT_EQ(options.window, 65536u);
  EXPECT_EQ(options.timeout, 1500ms);
  EXPECT_EQ(options.spin, 20us);
  EXPECT_EQ(options.directory, "/var/tmp");
  EXPECT_THAT(options.hosts, ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_EQ(options.color, Color::kBlue);
  EXPECT_EQ(options.nested, "ring");
}

TEST_F(ConfigTest, ANumberMayBeWrittenWhole) {
  config.read_toml("test.rate = 2", "job.toml");
  EXPECT_EQ(options.rate, 2);
  config.set("test.rate=2.5e-3");
  EXPECT_EQ(options.rate, 2.5e-3);
}

TEST_F(ConfigTest, ReadsEveryTypeFromKeyValueStrings) {
  for (const char* setting :
       {"test.check=0", "test.workers=8", "test.rate=0.1", "test.window=65536", "test.timeout=90s",
        "test.spin=auto", "test.directory=a=b", "test.hosts=a, b", "test.color=red",
        "test.algorithm.all_reduce="}) {
    config.set(setting);
  }
  EXPECT_FALSE(options.check);
  EXPECT_EQ(options.workers, 8);
  EXPECT_EQ(options.window, 65536u);
  EXPECT_EQ(options.timeout, 90s);
  EXPECT_EQ(options.spin, std::nullopt);
  EXPECT_EQ(options.directory, "a=b");
  EXPECT_THAT(options.hosts, ElementsAre("a", "b"));
  EXPECT_EQ(options.color, Color::kRed);
  EXPECT_EQ(options.nested, "");
}

TEST_F(ConfigTest, WhatIsReadLaterWins) {
  config.read_toml("test = {workers = 5, color = 'red', timeout = '7s'}", "job.toml");
  const Variable workers("LOCKSTEP_TEST_WORKERS", "6");
  const Variable color("LOCKSTEP_TEST_COLOR", "blue");
  config.read_environment();
  config.set("test.workers=7");
  EXPECT_EQ(options.workers, 7);
  EXPECT_EQ(options.color, Color::kBlue);
  EXPECT_EQ(options.timeout, 7s);
  EXPECT_TRUE(options.check);
}

TEST_F(ConfigTest, UnknownTomlKeyNamesPlaceAndNearest) {
  EXPECT_THAT(toml_error("[test]\nworkers = 2\ntimeuot = '3s'\n"),
              AllOf(StartsWith("job.toml:3:"), HasSubstr("'test.timeuot'"),
                    HasSubstr("did you mean test.timeout?")));
  EXPECT_THAT(toml_error("workers = 2"), HasSubstr("did you mean test.workers?"));
  EXPECT_THAT(toml_error("[entirely.different]\nthing = 2"), Not(HasSubstr("did you mean")));
}

TEST_F(ConfigTest, WrongTomlTypeNamesPlaceKeyAndWhatWasExpected) {
  EXPECT_EQ(toml_error("[test]\n\ntimeout = 30"),
            "job.toml:3:11: test.timeout must be a duration like \"30s\", at least 1ms; it is of "
            "type integer");
  EXPECT_THAT(toml_error("test.check = 'true'"), HasSubstr("must be true or false"));
  EXPECT_THAT(toml_error("test.workers = 2.5"), HasSubstr("must be an integer from 1 to 64"));
  EXPECT_THAT(toml_error("test.hosts = 'a'"), HasSubstr("must be a list of strings"));
  EXPECT_THAT(toml_error("test.hosts = ['a,b']"), HasSubstr("without commas"));
  EXPECT_THAT(toml_error("test.color = ['red']"), HasSubstr("must be one of red, green, blue"));
}

TEST_F(ConfigTest, WrongValueNamesWhatWasExpected) {
  EXPECT_EQ(set_error("test.workers=65"),
            "command line: test.workers must be an integer from 1 to 64; it is '65'");
  EXPECT_THAT(set_error("test.workers=4x"), HasSubstr("it is '4x'"));
  EXPECT_EQ(
      set_error("test.rate=-1"),
      "command line: test.rate must be a number like 0.5 or 3e-4, at least 0, at most 10; it is "
      "'-1'");
  for (const char* text :
       {"test.rate=nan", "test.rate=inf", "test.rate=1e999", "test.rate=1e-3x", "test.rate="}) {
    EXPECT_THAT(set_error(text), HasSubstr("must be a number")) << text;
  }
  EXPECT_THAT(toml_error("test.rate = '1e-3'"), HasSubstr("must be a number"));
  EXPECT_THAT(set_error("test.window=1Ki"), HasSubstr("at least 4Ki"));
  EXPECT_THAT(set_error("test.window=-1"), HasSubstr("a size like \"512Ki\""));
  EXPECT_EQ(
      set_error("test.window=5000.5"),
      "command line: test.window must be a size like \"512Ki\", at least 4Ki: '5000.5' is not a "
      "whole number of bytes; write it like 64KiB or 128Mi");
  EXPECT_THAT(set_error("test.timeout=0s"), HasSubstr("at least 1ms"));
  EXPECT_THAT(set_error("test.timeout=soon"), HasSubstr("a duration like \"30s\""));
  EXPECT_THAT(set_error("test.timeout=9e30h"), HasSubstr("a duration"));
  EXPECT_THAT(set_error("test.check=yes"), HasSubstr("true or false"));
  EXPECT_THAT(set_error("test.color=gren"), HasSubstr("did you mean green?"));
  EXPECT_THAT(set_error("test.spin=never"), HasSubstr("or \"auto\""));
  EXPECT_EQ(options.workers, 4) << "a refused value must leave the field alone";
}

TEST_F(ConfigTest, UnknownArgumentNamesNearest) {
  EXPECT_EQ(set_error("test.colour=red"),
            "command line: there is no key 'test.colour' (did you mean test.color?)");
  EXPECT_THAT(set_error("test.color"), HasSubstr("key=value"));
}

TEST_F(ConfigTest, BrokenTomlNamesLine) {
  EXPECT_THAT(toml_error("[test]\nworkers = \n"), StartsWith("job.toml:2:"));
}

TEST_F(ConfigTest, MisspeltVariableOfAKnownSectionIsAnError) {
  const Variable foreign("LOCKSTEP_OTHER", "1");
  config.read_environment();
  const Variable misspelt("LOCKSTEP_TEST_WORKRES", "1");
  EXPECT_THAT(error_of([&] { config.read_environment(); }),
              AllOf(HasSubstr("LOCKSTEP_TEST_WORKRES"), HasSubstr("LOCKSTEP_TEST_WORKERS")));
}

TEST_F(ConfigTest, WrongVariableIsNamed) {
  const Variable workers("LOCKSTEP_TEST_WORKERS", "many");
  EXPECT_THAT(error_of([&] { config.read_environment(); }),
              AllOf(StartsWith("LOCKSTEP_TEST_WORKERS"), HasSubstr("test.workers must be")));
}

TEST_F(ConfigTest, ReadsFilesAndSaysWhichOneItCannotRead) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("lockstep_config_test_" + std::to_string(getpid()) + ".toml");
  std::ofstream(path) << "[test]\nworkers = 9\n";
  config.read_file(path);
  EXPECT_EQ(options.workers, 9);
  std::ofstream(path) << "";
  config.read_file(path);
  std::filesystem::remove(path);
  EXPECT_THAT(error_of([&] { config.read_file(path); }),
              AllOf(HasSubstr(path.string()), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { config.read_file("/"); }), HasSubstr("/ is a folder"));
  // Would be read for ever.
  EXPECT_THAT(error_of([&] { config.read_file("/dev/zero"); }), HasSubstr("is a device"));
}

TEST_F(ConfigTest, ResolvedReadsBackToTheSameValues) {
  config.set("test.timeout=1501ms");
  config.set("test.window=5000");
  config.set("test.spin=1.5us");
  config.set("test.directory=a \"quoted\\path\"\twith a tab");
  config.set("test.hosts=a,b");
  config.set("test.color=blue");
  const Options before = options;
  const std::string text = config.resolved();
  options = Options();
  config.read_toml(text, "resolved");
  EXPECT_EQ(options.timeout, before.timeout);
  EXPECT_EQ(options.window, before.window);
  EXPECT_EQ(options.spin, before.spin);
  EXPECT_EQ(options.directory, before.directory);
  EXPECT_EQ(options.hosts, before.hosts);
  EXPECT_EQ(options.color, before.color);
}

TEST_F(ConfigTest, ResolvedSaysWhereValuesCameFrom) {
  config.read_toml("test.workers = 2", "job.toml");
  const Variable color("LOCKSTEP_TEST_COLOR", "red");
  config.read_environment();
  config.set("test.rate=0.5");
  config.set("test.directory=/data");
  config.set("test.window=8Ki");
  options.directory = "/data/run";
  options.spin = 20us;
  EXPECT_THAT(config.resolved(),
              AllOf(HasSubstr("test.workers = 2  # job.toml:1:"),
                    HasSubstr("test.color = \"red\"  # LOCKSTEP_TEST_COLOR\n"),
                    HasSubstr("test.rate = 0.5  # command line\n"),
                    HasSubstr("test.spin = \"20us\"  # derived\n"),
                    HasSubstr("test.directory = \"/data/run\"  # derived; command line gave "
                              "\"/data\"\n"),
                    HasSubstr("test.timeout = \"5min\"  # default\n")));
  Options others;
  Config copy;
  copy.bind("other", others.check, "Other.");
  EXPECT_THAT(error_of([&] { copy.copy_origins(config); }), HasSubstr("the same keys only"));
}

TEST_F(ConfigTest, WhatWasGivenIsKnownHoweverTheFieldHasChanged) {
  EXPECT_EQ(config.given("test.workers"), std::nullopt);
  config.set("test.workers=4");
  EXPECT_EQ(config.given("test.workers"), std::nullopt) << "that is the default";
  EXPECT_TRUE(config.is_set("test.workers"));
  config.set("test.workers=7");
  options.workers = 8;
  ASSERT_TRUE(config.given("test.workers"));
  EXPECT_EQ(config.given("test.workers")->value, "7");
  EXPECT_EQ(config.given("test.workers")->origin, "command line");
}

TEST_F(ConfigTest, NamesWithoutEffectAreAcceptedAndRemembered) {
  config.ignore("pin_memory");
  EXPECT_TRUE(config.knows("pin_memory"));
  EXPECT_TRUE(config.ignored().empty());
  config.set("pin_memory=true");
  config.read_toml("pin_memory = false", "job.toml");
  EXPECT_THAT(config.ignored(), ElementsAre("pin_memory"));
  EXPECT_THAT(config.describe("pin_memory"), HasSubstr("has no effect"));
  config.ignore("compile", [](std::string_view text) {
    return text == "false" ? std::nullopt : std::optional<std::string>(text);
  });
  config.set("compile=false");
  EXPECT_THAT(config.ignored(), ElementsAre("pin_memory"));
  config.set("compile=true");
  EXPECT_THAT(config.ignored(), ElementsAre("pin_memory", "compile"));
}

TEST_F(ConfigTest, DescribesEveryKeyWithItsDefault) {
  config.set("test.workers=9");
  EXPECT_THAT(config.describe(), AllOf(HasSubstr("test.workers = 4  (int)\n    Workers.\n"),
                                       HasSubstr("test.window = \"512Ki\"  (size)"),
                                       HasSubstr("test.spin = \"auto\"  (duration|auto)"),
                                       HasSubstr("test.hosts = []  (list)"),
                                       HasSubstr("test.color = \"green\"  (red|green|blue)")));
}

TEST_F(ConfigTest, DescribesASectionSorted) {
  bool other = false;
  config.bind("alpha.last", other, "Last.");
  config.alias("num_workers", "test.workers");
  const std::string all = config.describe();
  const auto at = [&](std::string_view text) {
    EXPECT_THAT(all, HasSubstr(std::string(text)));
    return all.find(text);
  };
  EXPECT_LT(at("[alpha]\nalpha.last"), at("\n[test]\ntest.algorithm.all_reduce"));
  EXPECT_LT(at("\ntest.check"), at("\ntest.color"));
  EXPECT_LT(at("\ntest.color"), at("\ntest.directory"));
  EXPECT_EQ(config.describe("test.w").find("alpha"), std::string::npos);
  EXPECT_THAT(config.describe("test.w"),
              AllOf(StartsWith("[test]\ntest.window"), HasSubstr("test.workers"),
                    Not(HasSubstr("test.color"))));
  EXPECT_THAT(config.describe("num_workers"), StartsWith("[test]\ntest.workers"));
  EXPECT_THAT(error_of([&] { config.describe("tset.color"); }), HasSubstr("test.color"));
}

TEST_F(ConfigTest, WhatAKeyIsCalledElsewhereIsUnderstoodInAnySection) {
  config.bind("test.global", options.reshard, "Global.").formerly("test.before");
  config.alias("num_workers", "test.workers");
  EXPECT_THAT(set_error("train.num_workers=3"), HasSubstr("(did you mean test.workers?)"));
  EXPECT_THAT(set_error("other.before=3"), HasSubstr("(did you mean test.global?)"));
}

TEST_F(ConfigTest, OtherNamesSetTheirKeys) {
  const auto when_on = [](std::string_view text) -> std::optional<std::string> {
    if (text != "true") return std::nullopt;
    return "blue";
  };
  config.alias("num_workers", "test.workers");
  config.alias("paint.blue", "test.color", when_on);
  config.alias("both", "test.workers");
  config.alias("both", "test.directory");
  config.set("num_workers=3");
  EXPECT_EQ(options.workers, 3);
  config.read_toml("paint.blue = false\nboth = 5", "job.toml");
  EXPECT_EQ(options.color, Color::kGreen);
  EXPECT_EQ(options.workers, 5);
  EXPECT_EQ(options.directory, "5");
  config.read_toml("[paint]\nblue = true", "job.toml");
  EXPECT_EQ(options.color, Color::kBlue);
  EXPECT_THAT(error_of([&] { config.set("num_workers=many"); }),
              AllOf(HasSubstr("num_workers"), HasSubstr("test.workers must be")));
}

TEST_F(ConfigTest, ReadsJsonAsItReadsToml) {
  config.alias("num_workers", "test.workers");
  config.read_json(R"({"test": {"workers": 7, "color": "red", "hosts": ["a", "b"]}})", "job.json");
  EXPECT_EQ(options.workers, 7);
  EXPECT_EQ(options.color, Color::kRed);
  EXPECT_EQ(options.hosts, (std::vector<std::string>{"a", "b"}));
  config.read_json(R"({"num_workers": 2, "test": {"timeout": null}})", "job.json");
  EXPECT_EQ(options.workers, 2);
  EXPECT_THAT(error_of([&] { config.read_json(R"({"test": {"wrokers": 7}})", "job.json"); }),
              AllOf(HasSubstr("job.json"), HasSubstr("did you mean test.workers?")));
  EXPECT_THAT(error_of([&] { config.read_json(R"({"test": {"workers": "7"}})", "job.json"); }),
              HasSubstr("must be an integer"));
  for (const char* text : {"[1]", "7"}) {
    EXPECT_THAT(error_of([&] { config.read_json(text, "job.json"); }),
                HasSubstr("expected a JSON object"));
  }
  for (const char* text : {"", "{", "{\"test\": {\"workers\": 7,}}"}) {
    EXPECT_THAT(error_of([&] { config.read_json(text, "job.json"); }),
                AllOf(HasSubstr("job.json is not valid JSON"), HasSubstr("at line 1, column ")));
  }
  EXPECT_THAT(error_of([&] { config.read_json(R"({"test": {"workers": 1e999}})", "job.json"); }),
              AllOf(HasSubstr("job.json has a number beyond"), HasSubstr("1e999")));
}

TEST_F(ConfigTest, AFormerNameSetsItsKeyFromEverySource) {
  config.bind("test.reshard", options.reshard, "Reshards.").formerly("test.keep", opposite);
  config.bind("test.shade", options.shade, kColorNames, "Shade.")
      .formerly("test.tint", renamed_values({{"sky", "blue"}}));
  config.set("test.keep=false");
  EXPECT_TRUE(options.reshard);
  config.read_toml("[test]\nkeep = true\ntint = 'sky'", "job.toml");
  EXPECT_FALSE(options.reshard);
  EXPECT_EQ(options.shade, Color::kBlue);
  config.read_json(R"({"test": {"keep": false, "tint": "red"}})", "job.json");
  EXPECT_TRUE(options.reshard);
  EXPECT_EQ(options.shade, Color::kRed) << "a value that kept its name";
  const Variable keep("LOCKSTEP_TEST_KEEP", "1");
  config.read_environment();
  EXPECT_FALSE(options.reshard);
  EXPECT_TRUE(config.is_set("test.reshard"));
}

TEST_F(ConfigTest, TheKeyIsWrittenAndItsFormerNameIsExplained) {
  config.bind("test.reshard", options.reshard, "Reshards.").formerly("test.keep", opposite);
  config.set("test.keep=false");
  EXPECT_THAT(config.resolved(), AllOf(HasSubstr("test.reshard = true  # command line\n"),
                                       Not(HasSubstr("test.keep"))));
  EXPECT_THAT(config.describe(),
              HasSubstr("test.reshard = false  (bool)\n    Reshards. (formerly test.keep)\n"));
  EXPECT_THAT(set_error("test.keep=perhaps"),
              AllOf(HasSubstr("test.reshard (formerly test.keep) must be true or false"),
                    HasSubstr("it is 'perhaps'")));
  EXPECT_THAT(toml_error("test.keep = 3"), HasSubstr("test.keep must be true or false"));
}

TEST_F(ConfigTest, OneSourceMayNotGiveBothNames) {
  config.bind("test.reshard", options.reshard, "Reshards.").formerly("test.keep", opposite);
  const auto both = AllOf(HasSubstr("test.keep"), HasSubstr("test.reshard"),
                          HasSubstr("are the same setting"), HasSubstr("Keep test.reshard"));
  EXPECT_THAT(toml_error("test.keep = false\ntest.reshard = true"), both);
  config.set("test.reshard=true");
  EXPECT_THAT(set_error("test.keep=false"), both);
  const Variable keep("LOCKSTEP_TEST_KEEP", "1");
  {
    const Variable reshard("LOCKSTEP_TEST_RESHARD", "1");
    EXPECT_THAT(error_of([&] { config.read_environment(); }), both);
  }
  config.read_environment();
  EXPECT_FALSE(options.reshard) << "a later source overrides, whatever name it uses";
}

TEST_F(ConfigTest, AFormerNameThatIsTakenIsRefused) {
  EXPECT_THAT(error_of([&] {
                config.bind("test.reshard", options.reshard, "Reshards.").formerly("test.workers");
              }),
              HasSubstr("LOCKSTEP_TEST_WORKERS"));
}

TEST_F(ConfigTest, KeysThatWouldShareAVariableAreRefused) {
  bool other = false;
  EXPECT_THAT(error_of([&] { config.bind("test.algorithm_all.reduce", other, "Other."); }),
              HasSubstr("LOCKSTEP_TEST_ALGORITHM_ALL_REDUCE"));
}

}  // namespace
}  // namespace lockstep
