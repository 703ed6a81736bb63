// Settings have versions: members agree on the latest one, in whatever order broadcasts arrive.
#include "storage/settings.h"

#include <algorithm>
#include <random>

#include "storage/service.h"
#include "support/catch.h"
#include "support/seed.h"
#include "support/store_rig.h"

using namespace weft;
using namespace weft::test;
using storage::Settings;
using storage::WallTime;

namespace storage_settings {

constexpr WallTime start{1'000'000'000};

storage::Setting made(std::uint64_t number, std::uint64_t writer, const std::string& value) {
    storage::Setting setting;
    setting.set_key("k");
    setting.set_value(value);
    setting.mutable_version()->set_number(number);
    setting.mutable_version()->set_writer(writer);
    return setting;
}

std::string value_of(const Settings& settings) {
    storage::Setting out;
    return settings.get("k", out).ok() ? out.value() : "";
}

TEST_CASE("settings: members that take the same ones in different orders agree on the latest") {
    std::mt19937_64 random(seed_of(0));
    for (int round = 0; round < 100; ++round) {
        std::vector<storage::Setting> all;
        for (std::uint64_t i = 0; i < 6; ++i) {
            all.push_back(made(2'000'000'000 + random() % 3, random(), std::to_string(i)));
        }
        const auto latest = std::max_element(all.begin(), all.end(), [](auto& a, auto& b) {
            return storage::is_later(b.version(), a.version());
        });
        const std::string expected = latest->value();
        for (int member = 0; member < 5; ++member) {
            std::shuffle(all.begin(), all.end(), random);
            Settings settings(start);
            for (const auto& one : all) (void)settings.set(one, start + WallTime(2'000'000'000));
            CHECK(value_of(settings) == expected);
        }
    }
}

TEST_CASE("settings: an older version is refused, and the text names the one that stays") {
    Settings settings(start);
    const WallTime now = start + WallTime(100);
    REQUIRE(settings.set(made(1'000'000'050, 7, "new"), now).ok());
    CHECK(settings.set(made(1'000'000'050, 7, "new"), now).ok());
    for (const auto& older : {made(1'000'000'049, 9, "old"), made(1'000'000'050, 6, "old"),
                              made(1'000'000'050, 7, "forged")}) {
        const Status status = settings.set(older, now);
        CHECK(status.code() == Code::failed_precondition);
        CHECK(status.effect() == Effect::none);
        CHECK(status.text().find("1000000050.0000000000000007") != std::string::npos);
    }
    CHECK(value_of(settings) == "new");
}

TEST_CASE("settings: numbers rise above all earlier ones, also when the clock goes back") {
    Settings settings(start);
    const std::uint64_t first = settings.next(start - WallTime(500));
    CHECK(first == 1'000'000'001);
    CHECK(settings.next(start) == first + 1);
    REQUIRE(settings.set(made(1'000'500'000, 1, "v"), start).ok());
    CHECK(settings.next(start) == 1'000'500'001);
    CHECK(settings.next(start + WallTime(1'000'000)) == 1'001'000'000);
}

TEST_CASE("settings: versions too far ahead or from before a restart are refused") {
    Settings settings(start);
    const auto code_of = [&](std::uint64_t number) {
        return settings.set(made(number, 1, "v"), start).code();
    };
    CHECK(code_of(0) == Code::invalid_argument);
    CHECK(code_of(UINT64_MAX) == Code::invalid_argument);
    const auto most = static_cast<std::uint64_t>((start + Settings::ahead_max).count());
    CHECK(code_of(most + 1) == Code::invalid_argument);
    CHECK(code_of(1'000'000'000) == Code::failed_precondition);
    CHECK(code_of(most) == Code::ok);
    CHECK(settings.next(start) == most + 1);
}

// Members with a store each, and clients that set.
struct MembersRig {
    static constexpr std::uint32_t size = 5;

    explicit MembersRig(std::uint64_t seed) : rig(seed, {.link = {.jitter = 50us}}) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            members.push_back({rank, {"sim://s" + std::to_string(rank)}});
        }
        view = GroupView::make("settings", 1, members).value();
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            const std::string root = files.path + "/" + std::to_string(rank);
            std::filesystem::create_directory(root);
            Runtime& runtime = rig.add("s" + std::to_string(rank));
            stores.push_back(storage::Store::open(runtime, root).value());
            REQUIRE(runtime.add(*stores.back()).ok());
            REQUIRE(runtime.join(*view, rank).ok());
        }
        for (const char* name : {"a", "b"}) clients.push_back(&rig.add(name));
    }
    ~MembersRig() { rig.runtimes.clear(); }

    using OneShotStatus = Result<storage::SetResult>;
    static Task<void> keep(Task<OneShotStatus> task, std::optional<OneShotStatus>& into) {
        into.emplace(co_await task);
    }
    void begin(int client, const std::string& value, std::optional<OneShotStatus>& into) {
        Runtime& runtime = *clients[static_cast<std::size_t>(client)];
        runtime.spawn(keep(
            storage::set_everywhere(runtime.group(*view).value(), "k", value, {.timeout = 10s}),
            into));
    }
    std::set<std::string> values() {
        std::set<std::string> all;
        for (const auto& store : stores) {
            storage::GetConfigRequest request;
            request.set_key("k");
            storage::Setting out;
            Call none;
            all.insert(store->GetConfig(none, request, out).ok() ? out.value() : "nothing");
        }
        return all;
    }
    static bool is_ok_everywhere(const std::optional<OneShotStatus>& outcome) {
        return outcome && outcome->ok() &&
               std::all_of((*outcome)->ranks.begin(), (*outcome)->ranks.end(),
                           [](const auto& one) { return one.status.ok(); });
    }

    TemporaryDirectory files;
    std::vector<std::unique_ptr<storage::Store>> stores;
    SimRig rig;
    std::optional<GroupView> view;
    std::vector<Runtime*> clients;
};

TEST_CASE("settings: two concurrent sets leave all members equal, and the older set is reported") {
    const std::uint64_t seed = seed_of(0);
    MembersRig rig(seed);
    std::mt19937_64 random(seed);
    int told = 0;
    for (int round = 0; round < 100; ++round) {
        const std::string a = "a" + std::to_string(round), b = "b" + std::to_string(round);
        std::optional<MembersRig::OneShotStatus> of_a, of_b;
        rig.begin(0, a, of_a);
        rig.rig.run_for(Duration(random() % 100'000));
        rig.begin(1, b, of_b);
        REQUIRE(rig.rig.run_until([&] { return of_a && of_b; }));
        REQUIRE((of_a->ok() && of_b->ok()));
        const std::set<std::string> values = rig.values();
        REQUIRE(values.size() == 1);
        const bool is_a = storage::is_later((*of_a)->version, (*of_b)->version);
        CHECK(*values.begin() == (is_a ? a : b));
        CHECK(MembersRig::is_ok_everywhere(is_a ? of_a : of_b));
        for (const auto& [rank, status] : (is_a ? **of_b : **of_a).ranks) {
            if (status.ok()) continue;
            CHECK(status.code() == Code::failed_precondition);
            CHECK(status.text().find(to_string((is_a ? *of_a : *of_b)->version)) !=
                  std::string::npos);
            ++told;
        }
    }
    CHECK(told > 0);
}

TEST_CASE("settings: an interrupted or late set does not overwrite a later one") {
    const std::uint64_t seed = seed_of(0);
    std::mt19937_64 random(seed);
    for (std::uint64_t round = 0; round < 40; ++round) {
        MembersRig rig(seed + round);
        // The set gets its number, and then reaches one member late.
        rig.rig.world->set_link("a", "s4", {.latency = 50ms});
        std::optional<MembersRig::OneShotStatus> of_a, of_b;
        rig.begin(0, "older", of_a);
        REQUIRE(rig.rig.run_until([&] { return rig.values().count("older") != 0; }));
        rig.rig.run_for(Duration(random() % 45'000'000));
        if (round % 2 == 0) rig.rig.kill("a");
        rig.begin(1, "newer", of_b);
        REQUIRE(rig.rig.run_until([&] { return of_b.has_value(); }));
        REQUIRE(of_b->ok());
        CHECK(MembersRig::is_ok_everywhere(of_b));
        CHECK(rig.values() == std::set<std::string>{"newer"});
        rig.rig.run_for(30s);
        CHECK(rig.values() == std::set<std::string>{"newer"});
    }
}

}  // namespace storage_settings
