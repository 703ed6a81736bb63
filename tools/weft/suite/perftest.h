// The programs of the package perftest that the suite compares with, each with all of its
// arguments: the listening host starts no other command.
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
// One of `perftests`; nullopt: no test has this number.
std::optional<Perftest> perftest_of(std::uint64_t number);

// Transfers in flight when bandwidth is measured, by perftest and by weft: of 64 KiB, and of 1 MiB.
inline constexpr std::uint32_t small_transfers = 16, large_transfers = 4;

// The command of the listening end; with `server`, an address, that of the client.
std::vector<std::string> command_of(Perftest test, std::uint16_t port, const std::string& server);

// The figure in a client's output: nanoseconds of a round trip (twice its typical time), or MiB/s.
// nullopt: it is no output of perftest.
std::optional<double> figure_in(Perftest test, std::string_view output);

// The version of the installed programs; empty: they are not installed.
std::string perftest_version();

}  // namespace weft::tool
