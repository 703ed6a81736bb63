// Durations, sizes and tables in readable form.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <weft/time.h>

namespace weft::tool {

// "312 ns", "12.4 us", "3.05 ms", "2.1 s": three significant digits.
std::string format_ns(double nanoseconds);
// "64 B", "4 KiB", "1.5 MiB".
std::string format_bytes(double bytes);
// "3.21 M", "450 k", "12".
std::string format_count(double count);

// "500ms", "1.5s", "2m", "20us", "3h"; a bare number means seconds.
std::optional<Duration> parse_duration(std::string_view text);

// Rows of equal length, each column as wide as its widest cell; numbers are formatted before.
class Table {
  public:
    explicit Table(std::vector<std::string> heads) { add(std::move(heads)); }
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    // Aligns this column left, as the first one always is; the others are aligned right.
    void flush_left(std::size_t column) { left_.insert(column); }
    // Lines that end in '\n'.
    std::string text() const;

  private:
    std::set<std::size_t> left_{0};
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace weft::tool
