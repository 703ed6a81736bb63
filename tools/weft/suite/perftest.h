// The programs of the package perftest that the suite stands beside, each with all of its
// arguments: the far host starts nothing that is not written here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tool {

enum class Perftest : std::uint8_t { send_latency, read_64k, read_1m, write_64k, write_1m };
inline constexpr Perftest perftests[] = {Perftest::send_latency, Perftest::read_64k,
                                         Perftest::read_1m, Perftest::write_64k,
                                         Perftest::write_1m};

// "ib_read_bw of 1 MiB".
std::string name_of(Perftest test);
// One of `perftests`; nothing: a number that is none of them.
std::optional<Perftest> perftest_of(std::uint64_t number);

// What is under way together where bandwidth is measured, of perftest's and of weft's beside it:
// transfers of 64 KiB, and of 1 MiB.
inline constexpr std::uint32_t small_transfers = 16, large_transfers = 4;

// The command of the end that waits; with `server`, an address, of the other one.
std::vector<std::string> words_of(Perftest test, std::uint16_t port, const std::string& server);

// What a client's end printed: nanoseconds there and back (twice its typical time), or MiB/s.
// Nothing: it is no output of perftest.
std::optional<double> figure_in(Perftest test, std::string_view output);

// Whether the programs are here, and the version that they tell; empty: they are not.
std::string perftest_version();

}  // namespace weft::tool
