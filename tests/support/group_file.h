// A group file in a directory of its own.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <weft/group_authority.h>

#include "support/catch.h"

namespace weft::test {

class GroupDirectory {
  public:
    GroupDirectory() {
        char name[] = "/tmp/weft-group-XXXXXX";
        REQUIRE(::mkdtemp(name));
        directory = name;
        path = directory / "group.json";
        write(path, view().to_json());
    }
    ~GroupDirectory() { std::filesystem::remove_all(directory); }

    // A view with rank 0 only.
    static GroupView view(std::uint64_t epoch = 1) {
        return GroupView::make("store", epoch, {{0, {"sm://a"}, 1, false}}).value();
    }
    // Overwrites the existing file, as an editor may do.
    static void write(const std::filesystem::path& to, const std::string& text) {
        std::ofstream(to, std::ios::trunc) << text;
    }
    static std::string read(const std::filesystem::path& from) {
        std::stringstream text;
        text << std::ifstream(from).rdbuf();
        return text.str();
    }
    // Replaces the file, as weft and careful editors do.
    void replace(const std::string& text) const {
        write(directory / "other", text);
        std::filesystem::rename(directory / "other", path);
    }
    std::unique_ptr<GroupAuthority> authority() const { return group_file(path); }
    // The names of all files in the directory, in order.
    std::string files() const {
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(directory)) {
            names.insert(entry.path().filename());
        }
        std::string all;
        for (const std::string& name : names) all += (all.empty() ? "" : " ") + name;
        return all;
    }

    std::filesystem::path directory;
    std::filesystem::path path;
};

// Admits this rank, at an address that no process has.
inline GroupAuthority::Decision admitting(std::uint32_t rank) {
    return [rank](const GroupView& view) {
        return admit(view, {rank, {"sm://x-" + std::to_string(rank)}});
    };
}

}  // namespace weft::test
