// The limits of a cgroup, as the kernel's files describe them, or fail to.
#include "base/cgroup.h"

#include <map>

#include "support/catch.h"

using namespace weft;

namespace {

using CgroupFiles = std::map<std::string, std::string>;

base::CgroupLimits cgroup_limits(const CgroupFiles& files) {
    return base::read_cgroup_limits([&](const std::string& path) -> std::optional<std::string> {
        const auto file = files.find(path);
        if (file == files.end()) return {};
        return file->second;
    });
}

std::optional<unsigned> cpus_by(const std::string& cpu_max) {
    return cgroup_limits({{"/sys/fs/cgroup/cpu.max", cpu_max}}).cpus;
}

}  // namespace

TEST_CASE("cgroup: a quota of cpus is rounded up, and what is malformed limits nothing") {
    CHECK(cpus_by("200000 100000\n") == 2u);
    CHECK(cpus_by("150000 100000\n") == 2u);
    CHECK(cpus_by("200001 100000") == 3u);
    CHECK(cpus_by("1000 100000\n") == 1u);
    CHECK(cpus_by("18446744073709551615 1000000\n") == std::nullopt);  // More than any machine has.
    for (const char* none :
         {"max 100000\n", "max", "", "\n", "garbage", "100000", "100000 ", " 100000", "0 100000",
          "-1 100000", "100000 0", "100000 -5", "100000 max", "1e5 100000", "100000 100000 1",
          "100000\n100000", "99999999999999999999 1", "100000x 100000"}) {
        INFO(none);
        CHECK(cpus_by(none) == std::nullopt);
    }
    CHECK(cgroup_limits({}).cpus == std::nullopt);
    CHECK(cgroup_limits({}).memory_bytes == std::nullopt);
}

TEST_CASE("cgroup: the smallest limit of the own group and its ancestors counts") {
    CgroupFiles files{{"/proc/self/cgroup", "0::/a/b:c/d\n"},
                      {"/sys/fs/cgroup/a/b:c/d/cpu.max", "800000 100000\n"},
                      {"/sys/fs/cgroup/a/b:c/d/memory.max", "max\n"},
                      {"/sys/fs/cgroup/a/b:c/memory.max", "4096\n"},
                      {"/sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
                      {"/sys/fs/cgroup/a/memory.max", "8192\n"},
                      {"/sys/fs/cgroup/a/other/cpu.max", "100000 100000\n"},
                      {"/sys/fs/cgroup/cpu.max", "max 100000\n"}};
    CHECK(cgroup_limits(files).cpus == 3u);
    CHECK(cgroup_limits(files).memory_bytes == 4096u);
    files["/sys/fs/cgroup/a/b:c/d/cpu.max"] = "50000 50000\n";
    CHECK(cgroup_limits(files).cpus == 1u);
    // A container in a namespace of its own sees its group as the root.
    files["/proc/self/cgroup"] = "0::/\n";
    files["/sys/fs/cgroup/cpu.max"] = "600000 100000\n";
    CHECK(cgroup_limits(files).cpus == 6u);
    CHECK(cgroup_limits(files).memory_bytes == std::nullopt);
    // The folder of a group that was removed.
    files["/proc/self/cgroup"] = "0::/gone (deleted)\n";
    CHECK(cgroup_limits(files).cpus == 6u);
    files["/proc/self/cgroup"] = "0::/../sibling\n";
    CHECK(cgroup_limits(files).cpus == 6u);
}

TEST_CASE("cgroup: version 1 has the quota and its period in two files") {
    CgroupFiles files{{"/proc/self/cgroup",
                       "5:memory:/job\n4:cpu,cpuacct:/job/step\n3:cpuset:/other\n0::/unified\n"},
                      {"/sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us", "-1\n"},
                      {"/sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us", "100000\n"},
                      {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "350000\n"},
                      {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
                      {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "65536\n"},
                      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}};
    CHECK(cgroup_limits(files).cpus == 4u);
    CHECK(cgroup_limits(files).memory_bytes == 65536u);
    files["/sys/fs/cgroup/cpu/job/cpu.cfs_period_us"] = "0\n";
    files.erase("/sys/fs/cgroup/memory/job/memory.limit_in_bytes");
    CHECK(cgroup_limits(files).cpus == std::nullopt);
    CHECK(cgroup_limits(files).memory_bytes == std::nullopt);
}

TEST_CASE("cgroup: malformed lists of groups are read to their end") {
    for (const char* text : {"", ":", "::", "0:", "0::", "\n\n", "0::\n", "x", "::/a", "1::/a",
                             "4:cpu", "4:cpu:", "4:,,cpu,:/", ",:,:,"}) {
        INFO(text);
        CHECK(cgroup_limits({{"/proc/self/cgroup", text},
                             {"/sys/fs/cgroup/a/cpu.max", "100000 100000"},
                             {"/sys/fs/cgroup/cpu.max", "700000 100000"}})
                  .cpus == 7u);
    }
}

TEST_CASE("cgroup: this process may use one cpu or more, and no more than its quota") {
    const unsigned usable = base::usable_cpus();
    CHECK(usable >= 1);
    CHECK(usable <= base::read_cgroup_limits().cpus.value_or(usable));
}
