// Runs a target over the given files and directories, as libFuzzer's main does, without libFuzzer.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "fuzz/fuzz.h"

namespace fs = std::filesystem;

static void run_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    // In memory of exactly that size: a sanitizer detects any access beyond it.
    const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
    std::fprintf(stderr, "%s\n", path.c_str());  // The last name printed is the failing file.
    (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

int main(int argc, char** argv) {
    std::set<fs::path> files;
    for (int i = 1; i < argc; ++i) {
        if (!fs::is_directory(argv[i])) {
            files.insert(argv[i]);
            continue;
        }
        for (const auto& entry : fs::directory_iterator(argv[i])) files.insert(entry.path());
    }
    for (const fs::path& path : files) run_file(path);
    std::printf("replayed %zu inputs\n", files.size());
    return files.empty() ? 1 : 0;  // A missing or empty corpus is an error.
}
