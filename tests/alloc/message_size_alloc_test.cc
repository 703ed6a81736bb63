// "Bounds before allocation" for parsed messages, counted: the memory of a message is measured
// before it is parsed, and clients share the server's memory for messages.
#include <random>

#include <weft/protobuf_group.h>

#include "alloc/counting_new.h"
#include "merge.weft.h"
#include "sizes.weft.h"
#include "support/catch.h"
#include "support/message_bytes.h"
#include "support/seed.h"
#include "support/sim_rig.h"

using namespace weft;
using sizes::v1::Empty;
using sizes::v1::Many;
using sizes::v1::SizesClient;
using sizes::v1::SizesMethods;
using test::allocations_count;
using test::group_in;
using test::in;
using test::live_bytes;
using test::number_of;
using test::repeat;
using test::SimRig;
using test::tag;
using test::take_peak_bytes;

namespace {

constexpr std::size_t mib = 1 << 20;

// Pairs of a map, all with different keys.
std::string pairs(std::uint32_t field, std::size_t bytes) {
    std::string all;
    for (std::size_t key = 0; all.size() < bytes; ++key) {
        all += in(field, tag(1, 0) + number_of(key));
    }
    return all;
}

std::string text_pairs(std::size_t bytes) {
    std::string all;
    for (std::size_t key = 0; all.size() < bytes; ++key) {
        all += in(17, in(1, "a key of some length " + std::to_string(key)) + in(2, "some value"));
    }
    return all;
}

// Texts that grow by a byte beyond their capacity, so that each is reallocated.
std::string growing(std::uint32_t field, std::size_t bytes) {
    std::string all;
    for (std::size_t length = 20; all.size() + length < bytes; length = 2 * length - 18) {
        all += in(field, std::string(length, 'x'));
    }
    return all;
}

struct Kind {
    std::string name;
    std::string body;
};

// Bodies of about that many bytes that expand to as much memory as possible.
std::vector<Kind> kinds(std::size_t bytes) {
    const auto nested = [&](int depth) {
        std::string body = repeat(in(5, ""), bytes / 2);
        for (int i = 0; i < depth; ++i) body = in(4, body);
        return body;
    };
    const std::string list(bytes & ~std::size_t{7}, '\1'), eight(8, '\1');
    const std::string doubles = in(10, list), one_double = in(10, eight);
    return {
        {"empty messages", repeat(in(5, ""), bytes)},
        {"empty messages of many fields", repeat(in(6, ""), bytes)},
        {"empty texts", repeat(in(7, ""), bytes)},
        {"texts of a byte", repeat(in(7, "x"), bytes)},
        {"texts of 16 bytes", repeat(in(8, std::string(16, 'x')), bytes)},
        {"one text", in(3, std::string(bytes, 'x'))},
        {"texts that grow", growing(2, bytes)},
        {"one list, packed", in(9, std::string(bytes, '\1'))},
        {"doubles, packed", in(10, std::string(bytes & ~std::size_t{7}, '\1'))},
        {"doubles, packed twice",
         in(10, std::string(bytes & ~std::size_t{7}, '\1')) + in(10, std::string(8, '\1'))},
        {"doubles, packed and one by one",
         in(10, std::string(bytes & ~std::size_t{7}, '\1')) + tag(10, 1) + std::string(8, '\1')},
        {"words, one by one", repeat(tag(11, 5) + std::string(4, '\1'), bytes)},
        {"small numbers", repeat(tag(21, 0) + '\1', bytes)},
        {"bools, packed", in(12, std::string(bytes, '\1'))},
        {"values of an enum", in(13, std::string(bytes, '\1'))},
        {"values that an enum has not", in(13, std::string(bytes, '\7'))},
        {"one value that an enum has not", repeat(tag(14, 0) + '\7', bytes)},
        {"unknown numbers", repeat(tag(90, 0) + '\1', bytes)},
        {"unknown texts", repeat(in(90, ""), bytes)},
        {"unknown texts of 16 bytes", repeat(in(90, std::string(16, 'x')), bytes)},
        {"unknown groups", repeat(group_in(90, ""), bytes)},
        {"unknown groups with a number", repeat(group_in(90, tag(1, 0) + '\1'), bytes)},
        {"messages with an unknown number", repeat(in(5, tag(1, 0) + '\1'), bytes)},
        {"groups", repeat(group_in(18, ""), bytes)},
        {"pairs of numbers", pairs(15, bytes)},
        {"pairs with a message", pairs(16, bytes)},
        {"pairs of texts", text_pairs(bytes)},
        {"sides of a oneof", repeat(in(19, std::string(16, 'x')) + in(20, ""), bytes)},
        {"messages with a short list", repeat(in(4, in(6, tag(5, 1) + std::string(8, 1))), bytes)},
        {"extension of texts", repeat(in(101, ""), bytes)},
        {"extension of numbers", in(103, std::string(bytes, '\1'))},
        {"extensions, each once",
         repeat(in(6, in(3, tag(100, 0) + '\1' + in(101, "x") + in(102, ""))), bytes)},
        {"extensions that are unknown", repeat(tag(999, 0) + '\1', bytes)},
        {"a list in two parts of a message", in(4, doubles) + in(4, one_double)},
        {"a list in two parts of a message in it",
         in(4, in(4, doubles)) + in(4, in(4, one_double))},
        {"a list, packed and one by one, in two parts of a message",
         in(4, doubles) + in(4, tag(10, 1) + eight)},
        {"a list in two parts of a group", group_in(22, in(1, list)) + group_in(22, in(1, eight))},
        {"a list in two parts of a pair's message",
         in(16, in(2, in(5, list)) + in(2, in(5, eight)))},
        {"a list in two parts of a side", in(20, in(5, list)) + in(20, in(5, eight))},
        {"a list in two parts of an extension", in(102, in(5, list)) + in(102, in(5, eight))},
        {"a text in two parts of a message",
         in(4, in(2, std::string(bytes, 'x'))) + in(4, in(2, std::string(bytes + 1, 'x')))},
        {"deep messages", nested(90)},
        {"too deep messages", nested(120)},
        {"a length that leads out", in(4, tag(4, 2) + number_of(bytes)) + repeat(in(5, ""), bytes)},
        {"a packed length that leads out",
         tag(9, 2) + number_of(2 * bytes) + std::string(bytes, 1)},
        {"a text's length that leads out",
         tag(3, 2) + number_of(2 * bytes) + std::string(bytes, 1)},
    };
}

struct Taken {
    std::size_t measured = 0;
    std::size_t at_most = 0;  // During the parse.
    std::size_t held = 0;
    bool parses = false;
};

Taken taken_by(std::string_view body) {
    Taken taken;
    taken.measured = detail::measure(detail::layout_of<Many>(), as_bytes(body), detail::too_large);
    const std::int64_t before = live_bytes();
    take_peak_bytes();
    Many message;
    taken.parses = detail::parse(message, as_bytes(body));
    taken.held = static_cast<std::size_t>(live_bytes() - before);
    taken.at_most = static_cast<std::size_t>(take_peak_bytes() - before);
    return taken;
}

// With assertions, generated code of proto2 checks whether texts are UTF-8, and composes a
// complaint about a text that is not.
#ifdef NDEBUG
constexpr std::size_t complaint_bytes = 0;
#else
constexpr std::size_t complaint_bytes = 1024;
#endif

// Tags of all fields and kinds, lengths near the existing bytes, some nesting.
std::string random_body(std::mt19937_64& random, int depth = 0) {
    std::string body;
    const auto pick = [&](std::uint64_t below) { return random() % below; };
    for (std::uint64_t fields = pick(12); fields > 0; --fields) {
        const auto field = static_cast<std::uint32_t>(pick(8) == 0 ? 98 + pick(8) : 1 + pick(23));
        switch (pick(6)) {
            case 0: body += tag(field, 0) + number_of(pick(pick(2) ? 3 : 1 << 20)); break;
            case 1: body += tag(field, 1) + std::string(8, static_cast<char>(pick(256))); break;
            case 2: body += tag(field, 5) + std::string(4, static_cast<char>(pick(256))); break;
            case 3: body += group_in(field, depth < 5 ? random_body(random, depth + 1) : ""); break;
            case 4: {
                const std::size_t bytes =
                    pick(8) == 0 ? pick(1 << 14) & ~std::uint64_t{7} : pick(60);
                body += in(field, std::string(bytes, static_cast<char>(pick(256))));
                break;
            }
            default: body += in(field, depth < 5 ? random_body(random, depth + 1) : "");
        }
    }
    if (pick(8) == 0 && !body.empty()) body[pick(body.size())] = static_cast<char>(pick(256));
    return body;
}

}  // namespace

TEST_CASE("parsing a message takes at most the estimated memory, whatever its fields") {
    for (const Kind& kind : kinds(mib)) {
        const Taken taken = taken_by(kind.body);
        INFO(kind.name << ": " << kind.body.size() << " bytes on the wire, measured "
                       << taken.measured << ", took " << taken.at_most << ", held " << taken.held);
        CHECK(taken.at_most <= taken.measured);
        // The measure is also not much larger, except for values that replace others.
        if (!allocations_count() || !taken.parses || taken.at_most < kind.body.size()) continue;
        CHECK(taken.measured <= 13 * taken.at_most + 4096);
    }
}

TEST_CASE("parsing a message takes at most the estimated memory, whatever its bytes") {
    std::mt19937_64 random(test::seed_of(0));
    int parsed = 0;
    for (int i = 0; i < 20'000; ++i) {
        const std::string body = random_body(random);
        const Taken taken = taken_by(body);
        parsed += taken.parses;
        INFO(i << ": measured " << taken.measured);
        REQUIRE(taken.at_most <= taken.measured + complaint_bytes);
    }
    CHECK(parsed > 1000);
}

TEST_CASE("the size estimate of a body stops at the limit that it exceeds") {
    const std::string body = repeat(in(5, ""), mib);
    CHECK(detail::measure(detail::layout_of<Many>(), as_bytes(body), mib) == detail::too_large);
    CHECK(detail::measure(detail::layout_of<Many>(), as_bytes(body), 1 << 30) <= 40 * mib);
}

namespace {

struct SizesServer final : sizes::v1::SizesService {
    Task<Status> Hold(Call& call, const Many&, Empty&) override {
        ++holding;
        while (!release && !call.cancelled()) {
            Noticed noticed{this, &call};
            co_await noticed;
        }
        --holding;
        co_return Status();
    }
    Task<Status> Fetch(Call&, const Empty&, Many&) override { co_return Status(); }

    // Until the call is cancelled or released.
    struct Noticed {
        SizesServer* server;
        Call* call;
        bool await_ready() const { return call->cancelled(); }
        void await_suspend(std::coroutine_handle<> awaiting) {
            server->held.push_back(awaiting);
            call->on_cancel([this, awaiting] {
                std::erase(server->held, awaiting);
                awaiting.resume();
            });
        }
        void await_resume() const {}
    };

    void let_go() {
        release = true;
        for (std::coroutine_handle<> one : std::exchange(held, {})) one.resume();
        release = false;
    }

    int holding = 0;
    bool release = false;
    std::vector<std::coroutine_handle<>> held;
};

struct Outcome {
    int completions = 0;
    Status status;
};

struct SizesRig {
    SizesServer service;
    SimRig rig;
    Runtime& server;
    explicit SizesRig(std::size_t parsed_bytes_max)
        : server(rig.add("server", {.parsed_bytes_max = parsed_bytes_max})) {
        REQUIRE(server.add(service).ok());
    }
    Channel client() { return rig.add("").connect("sim://server").value(); }

    std::shared_ptr<Outcome> hold(const Channel& channel, const std::string& body) {
        auto outcome = std::make_shared<Outcome>();
        channel.call(SizesMethods::Hold.id, as_bytes(body), {.timeout = 1h},
                     [into = outcome](const Status& status, ByteView) {
                         ++into->completions;
                         into->status = status;
                     });
        const int before = service.holding;
        REQUIRE(
            rig.run_until([&] { return outcome->completions > 0 || service.holding > before; }));
        return outcome;
    }
};

}  // namespace

TEST_CASE("a request that would expand beyond its limit is refused before it is parsed") {
    SizesRig rig(64 * mib);
    const Channel hostile = rig.client(), honest = rig.client();
    const std::string body = repeat(in(5, ""), 16 * mib);
    const auto before = live_bytes();
    take_peak_bytes();
    const auto refused = rig.hold(hostile, body);
    CHECK(take_peak_bytes() - before < static_cast<std::int64_t>(3 * body.size() + 4 * mib));
    REQUIRE(refused->completions == 1);
    CHECK(refused->status.code() == Code::resource_exhausted);
    CHECK(refused->status.effect() == Effect::none);
    INFO(refused->status.to_string());
    CHECK(refused->status.text().find("sizes.v1.Many in 16777216 bytes") != std::string::npos);
    CHECK(refused->status.text().find("33554432 bytes of memory") != std::string::npos);
    CHECK(refused->status.text().find("WEFT_PARSED_BYTES") != std::string::npos);
    // Honest clients are still served: a list of tiny texts, and one text.
    CHECK(rig.hold(honest, repeat(in(7, "abc"), mib / 2))->completions == 0);
    rig.service.let_go();
    CHECK(rig.hold(honest, in(3, std::string(16 * mib, 'x')))->completions == 0);
    rig.service.let_go();
    rig.rig.run_until_idle();
}

TEST_CASE("by default a request of a MiB of tiny texts, and one of 120 MiB of bytes, are served") {
    SizesRig rig(0);
    const Channel client = rig.client();
    for (const std::string& body :
         {repeat(in(7, "abc"), mib), in(3, std::string(120 * mib, 'x'))}) {
        const auto outcome = rig.hold(client, body);
        CHECK(outcome->completions == 0);
        rig.service.let_go();
        REQUIRE(rig.rig.run_until([&] { return outcome->completions == 1; }));
        CHECK(outcome->status.ok());
    }
}

TEST_CASE("requests count against their client's memory share until their handlers end") {
    SizesRig rig(128 * mib);
    const Channel greedy = rig.client(), other = rig.client();
    const std::string body = repeat(in(5, ""), mib);  // Up to 29 MiB when parsed.
    rig.hold(greedy, "");
    const auto before = live_bytes();
    take_peak_bytes();
    for (int round = 0; round < 3; ++round) {
        std::vector<std::shared_ptr<Outcome>> outcomes;
        for (int i = 0; i < 20; ++i) outcomes.push_back(rig.hold(greedy, body));
        const auto refused = std::ranges::count_if(
            outcomes, [](const auto& outcome) { return outcome->completions == 1; });
        CHECK(refused == 18);
        CHECK(outcomes.back()->status.code() == Code::resource_exhausted);
        // Another client gets half of the remaining memory.
        CHECK(rig.hold(other, body)->completions == 0);
        CHECK(rig.hold(other, body)->completions == 1);
        CHECK(take_peak_bytes() - before < 128 * static_cast<std::int64_t>(mib));
        if (round == 0) {
            rig.service.let_go();
            rig.rig.run_until_idle();
            CHECK(rig.service.holding == 0);
            CHECK(live_bytes() - before < static_cast<std::int64_t>(mib));
        } else {
            // The share of a disconnected client is returned when its handlers have seen the
            // cancel.
            rig.rig.runtimes[1] = nullptr;
            rig.rig.runtimes.erase(rig.rig.runtimes.begin() + 1);
            break;
        }
    }
    rig.rig.run_for(20s);
    const Channel next = rig.client();
    CHECK(rig.hold(next, body)->completions == 0);
    rig.service.let_go();
    rig.rig.run_until_idle();
}

TEST_CASE("waiting small requests that expand when parsed count at their size in memory") {
    SizesRig rig(16 * mib);
    const Channel greedy = rig.client(), other = rig.client();
    const std::string body = repeat(in(6, ""), 2000);  // Up to 250 KiB when parsed.
    std::size_t refused = 0;
    for (int i = 0; i < 200; ++i) refused += rig.hold(greedy, body)->completions == 1;
    CHECK(refused >= 160);
    CHECK(refused < 180);
    CHECK(rig.hold(other, body)->completions == 0);
    rig.service.let_go();
    rig.rig.run_until_idle();
}

namespace {

// Replies to every request with the same bytes.
struct Answerer final : Service {
    std::string body;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(SizesMethods::Fetch.id, [this](Call call) { call.reply(as_bytes(body)); });
    }
};

void check_large_reply(const Status& status) {
    INFO(status.to_string());
    CHECK(status.code() == Code::resource_exhausted);
    CHECK(status.effect() == Effect::applied);
    CHECK(status.text().find("sizes.v1.Many in 4194304 bytes") != std::string::npos);
    CHECK(status.text().find("parsed_bytes_max") != std::string::npos);
}

Task<void> fetch(const Channel& channel, Status& into, bool& done) {
    const SizesClient stub(channel);
    const Empty nothing;
    Result<Many> reply = co_await stub.Fetch(nothing);
    into = std::move(reply).status();
    done = true;
}

}  // namespace

TEST_CASE("a reply that would expand beyond its limit is refused before it is parsed") {
    Answerer service;
    SimRig rig;
    service.body = repeat(in(5, ""), 4 * mib);
    REQUIRE(rig.add("server").add(service).ok());
    Runtime& client = rig.add("", {.parsed_bytes_max = 64 * mib});
    const Channel channel = client.connect("sim://server").value();
    const auto before = live_bytes();
    take_peak_bytes();
    bool done = false;
    Status status;
    SizesClient(channel).Fetch({}, {}, [&](const Status& with, const Many&) {
        status = with;
        done = true;
    });
    REQUIRE(rig.run_until([&] { return done; }));
    check_large_reply(status);
    done = false;
    client.spawn(fetch(channel, status, done));
    REQUIRE(rig.run_until([&] { return done; }));
    check_large_reply(status);
    CHECK(take_peak_bytes() - before < static_cast<std::int64_t>(4 * service.body.size()));
    // A reply that takes half of the bound is parsed.
    service.body = repeat(in(5, ""), mib);
    done = false;
    client.spawn(fetch(channel, status, done));
    REQUIRE(rig.run_until([&] { return done; }));
    CHECK(status.ok());
}

TEST_CASE("replies of ranks share one memory limit, and each one beyond it is refused alone") {
    GroupOutcome outcome;
    std::string large;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        outcome.ranks.push_back({});
        outcome.ranks.back().rank = rank;
        const std::string body = rank == 1 ? repeat(in(5, ""), 20 * mib) : in(7, "x");
        const ByteView bytes = as_bytes(body);
        outcome.ranks.back().reply.assign(bytes.begin(), bytes.end());
    }
    const auto result =
        detail::ReadGroup<GroupResult<Many>>()(std::move(outcome), detail::PolicyCheck());
    REQUIRE(result.size() == 3);
    CHECK(result.ok_count() == 2);
    CHECK(result.status().code() == Code::resource_exhausted);
    // Memory taken by one reply is not available to the others.
    std::size_t room = 64 * mib;
    const std::string body = repeat(in(5, ""), mib);
    int taken = 0;
    Many reply;
    while (detail::read_reply(reply, as_bytes(body), room).ok()) ++taken;
    CHECK(taken == 1);
    CHECK(detail::read_reply(reply, as_bytes(in(7, "x")), room).ok());
}

TEST_CASE("merging fails and changes nothing when the reply would expand beyond its limit") {
    merge::v1::All all;
    all.mutable_sums()->set_i32(3);
    const std::string text = all.SerializeAsString();
    std::vector<std::byte> into(text.size());
    std::ranges::copy(as_bytes(text), into.begin());
    const std::string large = in(4, repeat(in(6, ""), 20 * mib));
    take_peak_bytes();
    const auto before = live_bytes();
    const Status status = merge::v1::MergingMethods::Everything.merge(into, as_bytes(large));
    CHECK(take_peak_bytes() - before < static_cast<std::int64_t>(mib));
    CHECK(status.code() == Code::resource_exhausted);
    CHECK(status.effect() == Effect::applied);
    CHECK(std::ranges::equal(into, as_bytes(text)));
}
