// What a peer over verbs may say that no honest one would: it costs its own connection and nobody
// else's.
#include <functional>
#include <memory>

#include "base/codec.h"
#include "na/address.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using verbs::Immediate;
using verbs::Kind;
using verbs::LaneWord;
using verbs::Opening;
using Raw = VerbsRawPeer;
using State = VerbsRawPeer::State;

namespace {

const Incarnation stranger{77, 78};

std::vector<std::byte> words_of(const Opening& opening) {
    std::vector<std::byte> words(verbs::opening_bytes);
    encode(opening, words);
    return words;
}

// A server with an honest peer, and somebody else.
struct Scene {
    VerbsRig rig;
    NaPair pair{*rig};
    NaNode& server = pair.b;
    Raw raw;

    bool wait_for(State state) {
        return rig->pump_until([&] {
            raw.step();
            return raw.state() == state;
        });
    }
    void connect(std::uint32_t credits = 32) {
        raw.connect(server->address(), words_of({stranger, 0, credits}));
        REQUIRE(wait_for(State::connected));
    }
    // Up on both sides.
    void greet(std::uint32_t credits = 32) {
        connect(credits);
        raw.say_hello(stranger);
        REQUIRE(rig->pump_until([&] { return bool(server.peer_of(stranger)); }));
    }
    // The stranger is gone, the others are not.
    void check_gone(const std::string& why) {
        REQUIRE(wait_for(State::over));
        const Down down = rig.wait_for_down(server);
        CHECK(down.code == Code::data_loss);
        says(down.error, why);
        CHECK(rig.is_alive(pair));
    }
};

std::vector<std::byte> some(std::size_t bytes) { return std::vector(bytes, std::byte{1}); }

}  // namespace

TEST_CASE("verbs hostile: requests that make no sense are refused with the reason") {
    Scene scene;
    std::vector<std::byte> other_version = words_of({stranger, 0, 4});
    other_version[4] = std::byte{9};
    const std::pair<std::vector<std::byte>, const char*> requests[] = {
        {{}, "bad magic"},
        {some(56), "bad magic"},
        {other_version, "wire version"},
        {words_of({stranger, 1u << 16, 4}), "impossible numbers"},
        {words_of({stranger, 0, 0}), "impossible numbers"},
        {words_of({stranger, 0, 4096}), "impossible numbers"},
    };
    for (const auto& [words, why] : requests) {
        Raw raw;
        raw.connect(scene.server->address(), words);
        REQUIRE(scene.rig->pump_until([&] {
            raw.step();
            return raw.state() == State::refused;
        }));
        const auto told = verbs::decode_rejection(raw.theirs);
        REQUIRE(told);
        says(std::string(told->text()), why);
    }
    CHECK(scene.server.downs.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: a server whose answer makes no sense is not connected to") {
    VerbsRig rig;
    NaNode& client = rig->open({.listens = false});
    std::size_t downs = 0;
    const auto refuse = [&](const std::function<void(Raw&)>& answer, Code code,
                            const std::string& why) {
        Raw raw;
        rig->start_connect(client, raw.listen("verbs://127.0.0.1:0"));
        REQUIRE(rig->pump_until([&] {
            raw.step();
            return raw.state() == State::asked;
        }));
        answer(raw);
        const Down down = rig.wait_for_down(client, ++downs);
        CHECK(down.code == code);
        says(down.error, why);
    };
    refuse([](Raw& raw) { raw.accept(some(100)); }, Code::data_loss, "bad magic");
    refuse(
        [](Raw& raw) {
            raw.accept(words_of({stranger, 0, 0}));
        },
        Code::data_loss, "impossible numbers");
    refuse([](Raw& raw) { raw.reject(some(148)); }, Code::unavailable, "nothing listens");
    std::byte words[verbs::rejection_bytes_max];
    verbs::encode_rejection(fail(Code::permission_denied, "not\nyou\x1b[2J"), words);
    refuse([&](Raw& raw) { raw.reject(words); }, Code::permission_denied,
           "refused: not\\x0ayou\\x1b[2J");
    verbs::encode_rejection(Status(Code::ok, "fine"), words);
    refuse([&](Raw& raw) { raw.reject(words); }, Code::unavailable, "fine");
}

TEST_CASE("verbs hostile: who calls a connection stale that came from him is dropped") {
    Scene scene;
    scene.rig.fake.name_rejections(10);
    Raw& raw = scene.raw;
    raw.connect(scene.server->address(), words_of({stranger, 0, 4}));
    REQUIRE(scene.wait_for(State::connected));
    Raw early;
    early.connect(scene.server->address(), words_of({{5, 6}, 0, 4}));
    // Asks, and goes before it looks at the answer.
    for (int i = 0; i < 2; ++i) early.step();
    scene.rig->settle();
    early.hang_up();
    scene.rig->settle();
    CHECK(scene.server.downs.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: immediates of no kind, of somebody else, or none at all") {
    const std::function<void(Scene&)> acts[] = {
        [](Scene& scene) { scene.raw.send(std::nullopt, some(64)); },
        [](Scene& scene) { scene.raw.send(0xffffffff, some(64)); },
        [](Scene& scene) { scene.raw.send(verbs::kinds << 28, some(64)); },
        [](Scene& scene) {
            const std::uint32_t others = scene.pair.ba.index;
            REQUIRE(others != scene.raw.their_opening().index);
            scene.raw.send(encode(Immediate{Kind::data, others, 0}), some(64));
        },
        [](Scene& scene) {
            scene.raw.send(encode(Immediate{Kind::bye, scene.pair.ba.index, 0}), {});
        },
        [](Scene& scene) {
            scene.raw.send(encode(Immediate{Kind::data, verbs::indices_max - 1, 0}), some(64));
        },
    };
    for (const auto& act : acts) {
        Scene scene;
        scene.greet();
        act(scene);
        scene.check_gone("a message of no known kind, or of another peer");
    }
}

TEST_CASE("verbs hostile: a message that no buffer holds") {
    Scene scene;
    scene.greet();
    scene.raw.send(Kind::data, some(20 * 1024));
    REQUIRE(scene.wait_for(State::over));
    const Down down = scene.rig.wait_for_down(scene.server);
    CHECK(down.peer == scene.server.downs[0].peer);
    CHECK_FALSE(down.error.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: credits that were never given, and messages beyond those that were") {
    {
        Scene scene;
        scene.greet();
        scene.raw.send(Kind::credit, {}, verbs::credits_max);
        scene.check_gone("more credits than it ever gave");
    }
    {
        Scene scene;
        scene.greet();
        // Whoever gets none back must stop.
        const std::uint32_t granted = scene.raw.their_opening().credits;
        std::byte frame[64];
        fill_frame(frame, 0);
        for (std::uint32_t i = 0; i <= granted; ++i) {
            fill_frame(frame, i);
            scene.raw.send(Kind::data, frame);
        }
        scene.server.poll(2 * granted);  // All at once: none is given back before.
        scene.check_gone("more messages than it was granted");
    }
}

TEST_CASE("verbs hostile: words out of place") {
    const std::pair<std::function<void(Scene&)>, const char*> acts[] = {
        {[](Scene& scene) { scene.raw.send(Kind::data, {}); }, "a message out of place"},
        {[](Scene& scene) { scene.raw.say_hello(stranger); }, "a second hello"},
        {[](Scene& scene) { scene.raw.send(Kind::credit, {}, 0); }, "without credits or content"},
        {[](Scene& scene) { scene.raw.send(Kind::credit, some(8), 1); }, ""},
        {[](Scene& scene) { scene.raw.send(Kind::lane, {}); }, "makes no sense"},
        {[](Scene& scene) { scene.raw.send(Kind::lane, some(verbs::lane_word_bytes)); },
         "makes no sense"},
    };
    for (const auto& [act, why] : acts) {
        Scene scene;
        scene.greet();
        act(scene);
        scene.check_gone(why);
    }
}

TEST_CASE("verbs hostile: who does not greet, or as somebody else, was never there") {
    const std::function<void(Scene&)> acts[] = {
        [](Scene& scene) { scene.raw.send(Kind::data, some(64)); },
        [](Scene& scene) { scene.raw.send(Kind::lane, some(64)); },
        [](Scene& scene) { scene.raw.send(Kind::hello, some(64)); },
        [](Scene& scene) {
            scene.raw.say_hello({1, 2});
        },
        [](Scene& scene) { scene.raw.send(Kind::bye, {}); },
        [](Scene& scene) { scene.raw.hang_up(); },
        [](Scene& scene) { scene.rig->pass(2500ms); },
    };
    for (const auto& act : acts) {
        Scene scene;
        scene.connect();
        act(scene);
        REQUIRE(scene.wait_for(State::over));
        scene.rig->settle();
        CHECK(scene.server.downs.empty());
        CHECK(scene.rig.is_alive(scene.pair));
    }
}

TEST_CASE("verbs hostile: who asks for lanes and takes no answer is not answered for ever") {
    Scene scene;
    scene.greet(1);  // It takes one message.
    const int before = scene.rig.fake.counts().pairs;
    LaneWord word;
    word.queue_pair = 5;
    word.reads = 255;
    std::byte words[verbs::lane_word_bytes];
    for (int i = 0; i < 10; ++i) {
        word.number = static_cast<std::uint32_t>(i);
        scene.raw.send(Kind::lane, {words, encode(word, words)});
        scene.rig->settle();
        CHECK(scene.rig.fake.counts().pairs <= before + static_cast<int>(verbs::lanes_most));
    }
    scene.check_gone("asks for lanes and takes no answer");
}

TEST_CASE("verbs hostile: a flood of asks for lanes costs no more queue pairs than it has lanes") {
    Scene scene;
    scene.greet(32);
    const int before = scene.rig.fake.counts().pairs;
    LaneWord word;
    word.queue_pair = 5;
    word.reads = 255;
    std::byte words[verbs::lane_word_bytes];
    for (std::uint32_t i = 0; i < 200 && scene.raw.state() == State::connected; ++i) {
        word.number = i;
        // It gives back what it gets, as often as it has to.
        scene.raw.send(Kind::lane, {words, encode(word, words)}, scene.raw.got.empty() ? 0 : 1);
        if (!scene.raw.got.empty()) scene.raw.got.erase(scene.raw.got.begin());
        for (int turn = 0; turn < 3; ++turn) scene.rig->pump();
        scene.raw.step();
        CHECK(scene.rig.fake.counts().pairs <= before + static_cast<int>(verbs::lanes_most));
    }
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: an answer to an ask that was never made, or was long ago, is nothing") {
    Scene scene;
    scene.greet();
    LaneWord word;
    std::byte words[verbs::lane_word_bytes];
    for (const auto what : {LaneWord::What::answer, LaneWord::What::refuse}) {
        word.what = what;
        word.number = 1;
        scene.raw.send(Kind::lane, {words, encode(word, words)});
    }
    scene.rig->settle();
    CHECK(scene.server.downs.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: who has no lane, or one that leads nowhere, costs the transfers") {
    enum class Answer { refuses, names_nobody, names_the_asker };
    for (const auto how : {Answer::refuses, Answer::names_nobody, Answer::names_the_asker}) {
        Scene scene;
        scene.greet();
        const PeerId peer = scene.server.peer_of(stranger);
        Buffer local = scene.rig->allocate(4096);
        RmaItem item;
        item.peer = peer;
        item.local = local.bytes();
        const std::uint64_t cookie = scene.server.post(item);
        REQUIRE(cookie != 0);
        std::optional<LaneWord> asked;
        REQUIRE(scene.rig->pump_until([&] {
            scene.raw.step();
            for (const auto& message : scene.raw.got) {
                const auto word = verbs::decode_immediate(message.immediate);
                if (word && word->kind == Kind::lane)
                    asked = verbs::decode_lane_word(message.bytes);
            }
            return asked.has_value();
        }));
        LaneWord answer = *asked;
        const bool refuses = how == Answer::refuses;
        answer.what = refuses ? LaneWord::What::refuse : LaneWord::What::answer;
        if (how == Answer::names_nobody) answer.queue_pair = 5;
        answer.aux = static_cast<std::uint32_t>(Code::resource_exhausted);
        answer.reads = 16;
        std::byte words[verbs::lane_word_bytes];
        scene.raw.send(Kind::lane, {words, encode(answer, words)});
        scene.rig->settle();
        if (how == Answer::names_nobody) {
            // Its card gives up, and the connection with it.
            CHECK_FALSE(scene.server.rma_done.contains(cookie));
            scene.rig.fake.pass(60s);  // It has chosen long time-outs, too.
        }
        if (!refuses) scene.rig.wait_for_down(scene.server);
        REQUIRE(scene.rig->pump_until([&] { return scene.server.rma_done.contains(cookie); }));
        CHECK(scene.server.rma_done[cookie] == Code::unavailable);
        CHECK(scene.rig.is_alive(scene.pair));
    }
}
