// Runs a target over the files and directories that are named: what libFuzzer's main does without
// libFuzzer.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/fuzz.h"

namespace fs = std::filesystem;

static std::size_t run_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    // In memory of exactly that size: a sanitizer sees a step beyond.
    const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
    std::fprintf(stderr, "%s\n", path.c_str());
    (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
    return 1;
}

int main(int argc, char** argv) {
    std::size_t files = 0;
    for (int i = 1; i < argc; ++i) {
        if (!fs::is_directory(argv[i])) {
            files += run_file(argv[i]);
            continue;
        }
        for (const auto& entry : fs::directory_iterator(argv[i])) files += run_file(entry.path());
    }
    std::printf("replayed %zu inputs\n", files);
    return files > 0 ? 0 : 1;  // A corpus that is not found is no corpus.
}
