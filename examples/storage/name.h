// What an object may be called.
#pragma once

#include <string>
#include <string_view>

#include <weft/status.h>

namespace storage {

inline constexpr std::size_t name_bytes_max = 1024;
inline constexpr std::size_t name_depth_max = 32;
// A file name on Linux has 255 bytes at most, and an unfinished object's is 27 longer.
inline constexpr std::size_t part_bytes_max = 200;

// Unfinished objects are files called ".<name>.<16 hex digits>.weft-tmp".
inline constexpr std::string_view unfinished_suffix = ".weft-tmp";

// A name is a relative path of UTF-8 parts. Errors: INVALID_ARGUMENT, with what is wrong about it.
weft::Status judge_name(std::string_view name);

// "a/b/c" is "c" in the directory "a/b"; "c" is "c" in "".
struct SplitName {
    std::string directory;
    std::string leaf;
};
// A prefix is the start of a name; empty: of all.
weft::Status judge_prefix(std::string_view prefix);

SplitName split(std::string_view name);

// In the order of a listing: part by part, each by its bytes.
bool is_before(std::string_view a, std::string_view b);

bool is_utf8(std::string_view text);

// In quotes, with what is not printable ASCII or UTF-8 replaced, cut when long: for error texts.
std::string quote(std::string_view name);

}  // namespace storage
