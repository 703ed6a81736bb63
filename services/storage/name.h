// The names of objects.
#pragma once

#include <string>
#include <string_view>

#include <weft/status.h>

namespace storage {

inline constexpr std::size_t name_bytes_max = 1024;
inline constexpr std::size_t name_depth_max = 32;
// A file name on Linux has at most 255 bytes, and an unfinished object's name is 27 bytes longer.
inline constexpr std::size_t part_bytes_max = 200;

// Unfinished objects are files with the name ".<name>.<16 hex digits>.weft-tmp".
inline constexpr std::string_view unfinished_suffix = ".weft-tmp";

// A name is a relative path of UTF-8 parts. Errors: INVALID_ARGUMENT, with the violated rule.
weft::Status validate_name(std::string_view name);

// "a/b/c" is "c" in the directory "a/b"; "c" is "c" in "".
struct SplitName {
    std::string directory;
    std::string leaf;
};
// A prefix is the start of a name; the empty prefix matches all names.
weft::Status validate_prefix(std::string_view prefix);

SplitName split(std::string_view name);

// The order of a listing: part by part, each by its bytes.
bool is_before(std::string_view a, std::string_view b);

bool is_utf8(std::string_view text);

// For error texts: in quotes, with bytes that are not printable ASCII or UTF-8 replaced, cut when
// long.
std::string quote(std::string_view name);

}  // namespace storage
