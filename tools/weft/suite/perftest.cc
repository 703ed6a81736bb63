#include "suite/perftest.h"

#include <sstream>

#include "perf/child.h"

namespace weft::tool {

namespace {

struct Program {
    const char* name;
    const char* size;
    const char* words;
    std::uint32_t inflight;  // 0: it measures latency.
    bool is_latency() const { return inflight == 0; }
};

constexpr Program programs[] = {{"ib_send_lat", "64", "64 B", 0},
                                {"ib_read_bw", "65536", "64 KiB", small_transfers},
                                {"ib_read_bw", "1048576", "1 MiB", large_transfers},
                                {"ib_write_bw", "65536", "64 KiB", small_transfers},
                                {"ib_write_bw", "1048576", "1 MiB", large_transfers}};
static_assert(std::size(programs) == std::size(perftests));

const Program& program_of(Perftest test) { return programs[static_cast<std::size_t>(test)]; }

}  // namespace

std::string name_of(Perftest test) {
    return std::string(program_of(test).name) + " of " + program_of(test).words;
}

std::optional<Perftest> perftest_of(std::uint64_t number) {
    if (number >= std::size(perftests)) return std::nullopt;
    return perftests[number];
}

// -R: rdma_cm makes the connection, so it uses the same device and path as weft's. -F: permits a
// processor with changing frequency. -D, -f: runs for so many seconds and counts all of them,
// because no number of operations suits every device. -t: with the default of 128 in flight, a slow
// device completes none in the time, and no figure is printed.
std::vector<std::string> command_of(Perftest test, std::uint16_t port, const std::string& server) {
    const Program& program = program_of(test);
    std::vector<std::string> words = {program.name,         "-R", "-F",        "-p",
                                      std::to_string(port), "-s", program.size};
    if (program.is_latency()) {
        words.insert(words.end(), {"-n", "1000"});
    } else {
        words.insert(words.end(), {"-D", "2", "-f", "0", "-t", std::to_string(program.inflight)});
    }
    if (!server.empty()) words.push_back(server);
    return words;
}

// Columns of latency: bytes, iterations, least, most, typical, ... in microseconds, one way; of
// bandwidth: bytes, iterations, peak, average, in units of 1048576 bytes a second.
std::optional<double> figure_in(Perftest test, std::string_view output) {
    const bool latency = program_of(test).is_latency();
    std::istringstream lines{std::string(output)};
    std::optional<double> figure;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream cells(line);
        std::vector<double> numbers;
        for (double number = 0; cells >> number;) numbers.push_back(number);
        const std::size_t at = latency ? 4 : 3;
        if (numbers.size() <= at || !cells.eof()) continue;
        if (numbers[0] != std::stod(program_of(test).size) || numbers[at] <= 0) continue;
        figure = latency ? numbers[at] * 2000 : numbers[at];
    }
    return figure;
}

std::string perftest_version() {
    for (const char* program : {"ib_send_lat", "ib_read_bw", "ib_write_bw"}) {
        Result<Child> child = Child::start({program, "--version"}, {.with_errors = true});
        if (!child) return "";
        // Some versions exit with status 1 nevertheless; a missing program prints nothing.
        Result<std::string> line = child->line(5s);
        if (!line || line->find("ersion") == std::string::npos) return "";
        if (program == std::string_view("ib_write_bw")) {
            return line->substr(line->find_last_of(' ') + 1);
        }
    }
    return "";
}

}  // namespace weft::tool
