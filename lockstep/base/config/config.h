// Settings: named keys bound to the fields of plain structs.
//
// A subsystem has one struct of options whose member initialisers are the defaults, and one
// function that binds its fields to dotted keys with a sentence of documentation each. Values then
// come from a TOML file, from the environment (comm.timeout is LOCKSTEP_COMM_TIMEOUT) and from
// key=value strings; whatever is read later wins, so the order of the calls is the precedence.
//
//   CommOptions options;
//   Config config;
//   bind(config, options);
//   config.read_file("job.toml");
//   config.read_environment();
//   config.set("comm.timeout=30s");
//
// A key that does not exist or a value of the wrong type throws Error(kInvalidArgument). The
// message has the origin of the value (file, line and column; variable; argument), what was
// expected, and for a key the nearest existing one. The fields read before it keep their new
// values.
//
// Bound fields must outlive the Config and stay in place. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

// What a number may be, both ends included.
template <class T>
struct ValueRange {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

class Config {
 public:
  using Duration = std::chrono::nanoseconds;

  // Converts a value of a former name to a value of the key, both as text. Returns unknown text
  // unchanged, so that the error of the key reports it.
  using Convert = std::function<std::string(std::string_view)>;

  // What bind() returns: the key just bound, to add its former names to.
  class Declaration {
   public:
    // `name` stays valid wherever the key is: in files, in the environment and in key=value
    // strings. A source that gives both the key and a former name is an error. Output always uses
    // the key's own name; describe() lists the former ones. Throws Error(kInvalidArgument) for a
    // name that is taken.
    //
    //   config.bind("optimizer.learning_rate", ...).formerly("schedule.rate");
    Declaration& formerly(std::string_view name, Convert convert = {});

   private:
    friend class Config;
    Declaration(Config& config, std::size_t key) : config_(config), key_(key) {}
    Config& config_;
    std::size_t key_;
  };

  // Binds a field to a key; the field's current value is the default. Throws
  // Error(kInvalidArgument) for a key whose name or environment variable is taken. Text and TOML
  // forms by type:
  //   bool      true or false                        (as text also 1 and 0)
  //   int       42
  //   number    0.5, 3e-4, 2                         (finite)
  //   size      "512Ki", "64KiB", 4096               (bytes)
  //   duration  "30s", "1.5ms", "5min"; an optional one also "auto"
  //   string    "any text"
  //   list      ["a", "b"]                           (as text a,b)
  //   numbers   [1.0, 2.5]                           (as text 1.0,2.5; finite)
  Declaration bind(std::string_view key, bool& field, std::string_view doc);
  Declaration bind(std::string_view key, int& field, std::string_view doc,
                   ValueRange<int> range = {});
  Declaration bind(std::string_view key, double& field, std::string_view doc,
                   ValueRange<double> range = {});
  Declaration bind(std::string_view key, std::size_t& field, std::string_view doc,
                   ValueRange<std::size_t> range = {});
  Declaration bind(std::string_view key, Duration& field, std::string_view doc,
                   Duration min = Duration::zero());
  Declaration bind(std::string_view key, std::optional<Duration>& field, std::string_view doc);
  Declaration bind(std::string_view key, std::string& field, std::string_view doc);
  Declaration bind(std::string_view key, std::vector<std::string>& field, std::string_view doc);
  Declaration bind(std::string_view key, std::vector<double>& field, std::string_view doc,
                   ValueRange<double> range = {});

  // A choice: an enumeration whose values 0, 1, ... are called names[0], names[1], ...
  template <class Enum>
  requires std::is_enum_v<Enum> Declaration bind(std::string_view key, Enum& field,
                                                 std::span<const std::string_view> names,
                                                 std::string_view doc) {
    return bind_choice(
        key, names, [&field] { return static_cast<std::size_t>(field); },
        [&field](std::size_t index) { field = static_cast<Enum>(index); }, doc);
  }

  // Accepts another trainer's name for a bound key. `translate` turns the value given under that
  // name into the value of the key, or returns nothing to leave the key unchanged. A name that is
  // already a key stays that key; a name that is bound to several keys sets all of them.
  using Translate = std::function<std::optional<std::string>(std::string_view)>;
  void alias(std::string_view other, std::string_view key, Translate translate = {});
  // A name that is known elsewhere and has no effect here: it is accepted, and ignored() lists it
  // unless `translate` returns nothing, for a value that asks for nothing.
  void ignore(std::string_view other, Translate translate = {}) {
    alias(other, "", std::move(translate));
  }

  // TOML, or JSON where the file's name ends in .json.
  void read_file(const std::string& path);
  // `source` is what errors call the text.
  void read_toml(std::string_view text, std::string_view source);
  void read_json(std::string_view text, std::string_view source);
  // Reads the variables of all keys. A variable that begins like a section's (LOCKSTEP_COMM_) but
  // belongs to no key is an error.
  void read_environment();
  void set(std::string_view key_and_value);

  std::vector<std::string_view> keys() const;
  // Whether a key, a former name of one or an alias is called that.
  bool knows(std::string_view name) const;
  // Whether a source set a bound key, even to its default.
  bool is_set(std::string_view key) const;

  // What a source gave a key.
  struct Given {
    std::string value;   // as TOML
    std::string origin;  // file, line and column; variable; command line
  };
  // The value that a source set; nothing if no source did, or only to the default. Later changes of
  // the field do not affect it.
  std::optional<Given> given(std::string_view key) const;
  // The names of ignore() that a source set, in order, each once.
  const std::vector<std::string>& ignored() const { return ignored_; }

  // Takes over from another Config, which binds the same keys in the same order, where its values
  // came from. The values themselves are the caller's to copy.
  void copy_origins(const Config& other);

  // The keys whose names begin with `prefix`, with type, default and documentation, for people:
  // sorted, section by section. Another name of a key describes what it sets. Throws
  // Error(kInvalidArgument) for a prefix that none has.
  std::string describe(std::string_view prefix = "") const;
  // The values in force as TOML that read_file() takes back, each with where it came from:
  // "default", the file, line and column, the variable, "command line", or "derived" where the
  // field is no longer what was given.
  std::string resolved() const;
  // "key = value" of every key, without origins.
  std::vector<std::string> values() const;

  static std::string environment_name(std::string_view key);

 private:
  // The TOML type, besides string, that a key accepts.
  enum class Literal { kNone, kBool, kInteger, kNumber, kList, kNumbers };

  struct FormerName {
    std::string name;
    std::string variable;  // of the environment
    Convert convert;       // empty: the value is the same
  };

  struct Key {
    std::string name;
    std::string variable = {};  // of the environment
    std::vector<FormerName> former = {};
    std::string type;      // "duration", "auto|shm|tcp"
    std::string expected;  // `a duration like "30s"`
    std::string doc;
    Literal literal = Literal::kNone;
    bool quoted = true;                            // a TOML string may stand for it
    std::vector<std::string_view> choices;         // of a choice
    std::function<bool(std::string_view)> assign;  // false: not `expected`
    std::function<std::string()> print;            // the value as TOML
    std::string initial;                           // the default as TOML
    std::string origin;                            // of the value; empty: no source set it
    std::string given;                             // the value of that origin as TOML
    std::string given_as;                          // which of its names; empty: an alias
    int given_in = 0;                              // the source, as source_ counts them
  };

  // A key by one of its names.
  struct NamedKey {
    Key* key;
    const FormerName* former;  // nullptr: by its current name
  };

  struct Alias {
    std::string name;
    std::string key;  // empty: it has no effect
    Translate translate;
  };

  Declaration add(Key key);
  void check_variable_is_free(std::string_view name, std::string_view variable) const;
  Declaration bind_choice(std::string_view key, std::span<const std::string_view> names,
                          std::function<std::size_t()> get, std::function<void(std::size_t)> put,
                          std::string_view doc);
  void assign(const NamedKey& named, std::string_view text, std::string_view origin);
  // Throws Error(kInvalidArgument) if this source has already set the key by another name.
  static void check_one_name(const Key& key, std::string_view name, int source,
                             std::string_view origin);
  bool is_alias(std::string_view name) const;
  void assign_alias(std::string_view name, std::string_view text, std::string_view origin);
  // The key that has or had that name; throws Error(kInvalidArgument) with the likeliest one.
  NamedKey find(std::string_view name, std::string_view origin);
  const Key& bound(std::string_view key) const;
  // " (did you mean X?)" for a name that is none; by what it ends in, then by its letters.
  std::string suggestion(std::string_view name) const;
  // Where the value in force came from.
  static std::string origin_of(const Key& key);

  friend class TomlReader;
  friend class JsonReader;
  std::vector<Key> keys_;
  std::vector<Alias> aliases_;
  std::vector<std::string> ignored_;
  // Counts files and readings of the environment; all key=value strings together are source 0.
  int sources_ = 0;
  int source_ = 0;  // the one being read
};

// A Convert for a key that means the opposite of its former name: swaps true and false.
std::string opposite(std::string_view text);

// A Convert for a choice whose values have new names.
struct RenamedValue {
  std::string_view before;
  std::string_view now;
};
Config::Convert renamed_values(std::initializer_list<RenamedValue> values);

}  // namespace lockstep
