// Messages that a correct peer over verbs never sends: only the connection of their sender ends.
#include <functional>
#include <memory>

#include "base/codec.h"
#include "na/address.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using verbs::ConnectData;
using verbs::Immediate;
using verbs::Kind;
using verbs::QueuePairMessage;
using Raw = VerbsRawPeer;
using State = VerbsRawPeer::State;

namespace {

const Incarnation stranger{77, 78};

// A server with a correct peer, and a raw peer.
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
    // Connected on both sides.
    void greet(std::uint32_t credits = 32) {
        connect(credits);
        raw.send_hello(stranger);
        REQUIRE(rig->pump_until([&] { return bool(server.peer_of(stranger)); }));
    }
    // The raw peer is disconnected, and the correct one is not.
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

TEST_CASE("verbs hostile: invalid connect requests are refused with the reason") {
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

TEST_CASE("verbs hostile: a connect fails when the server's reply is invalid") {
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

TEST_CASE("verbs hostile: a listener that rejects after its hello is lost once") {
    for (const int status : {28, 10}) {  // By the consumer; as stale.
        VerbsRig rig;
        NaNode& client = rig->open({.listens = false});
        Raw raw;
        const PeerId peer = rig->start_connect(client, raw.listen("verbs://127.0.0.1:0"));
        REQUIRE(rig->pump_until([&] {
            raw.step();
            return raw.state() == State::asked;
        }));
        raw.accept(words_of({stranger, 0, 4}));
        rig.fake.cut_cm();  // What establishes the connection is late.
        raw.send_hello(stranger);
        REQUIRE(rig->pump_until([&] { return client.at(peer).state == PeerState::up; }));
        rig.fake.name_rejections(status);
        raw.reject(some(148));
        rig.fake.restore();
        const Down down = rig.wait_for_down(client);
        CHECK(down.code == Code::unavailable);
        says(down.error, "rejected the connection after its hello");
    }
}

TEST_CASE(
    "verbs hostile: a connect that is rejected as stale after the accept leaves no send behind") {
    VerbsRig rig;
    // Without inline data a hello has its slot until it is sent.
    NaNode& client = rig->open({.listens = false, .verbs_without = "inlining"});
    std::optional<Raw> raw(std::in_place);
    const std::string uri = raw->listen("verbs://127.0.0.1:0");
    const PeerId peer = rig->start_connect(client, uri);
    REQUIRE(rig->pump_until([&] {
        raw->step();
        return raw->state() == State::asked;
    }));
    raw->accept(words_of({stranger, 0, 4}));
    rig.fake.cut_cm();
    rig->run_until_idle();  // The client sends its hello.
    rig.fake.name_rejections(10);
    raw->reject(some(148));
    raw.reset();
    NaNode& server = rig->open({.uri = uri});
    rig.fake.restore();
    REQUIRE(rig->pump_until([&] {
        return client.at(peer).state == PeerState::up && server.peer_of(client.incarnation);
    }));
    // It has room for as many messages as a client that was accepted at once.
    NaNode& usual = rig->open({.listens = false, .verbs_without = "inlining"});
    const PeerId at_once = rig->connect(usual, server);
    rig->run_until_idle();
    const auto fill = [](NaNode& node, PeerId to) {
        int sent = 0;
        while (node.send(to, 4096)) ++sent;
        return sent;
    };
    const int room = fill(usual, at_once);
    CHECK(room > 1);
    CHECK(fill(client, peer) == room);
}

TEST_CASE("verbs hostile: a peer that rejects its own connect as stale is dropped") {
    Scene scene;
    scene.rig.fake.name_rejections(10);
    Raw& raw = scene.raw;
    raw.connect(scene.server->address(), words_of({stranger, 0, 4}));
    REQUIRE(scene.wait_for(State::connected));
    Raw early;
    early.connect(scene.server->address(), words_of({{5, 6}, 0, 4}));
    // Sends a request and hangs up before it reads the reply.
    for (int i = 0; i < 2; ++i) early.step();
    scene.rig->run_until_idle();
    early.hang_up();
    scene.rig->run_until_idle();
    CHECK(scene.server.downs.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: an immediate of unknown kind, of another peer or missing disconnects") {
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
        scene.check_gone("a message of unknown kind, or of another peer");
    }
}

TEST_CASE("verbs hostile: a message larger than the buffers disconnects its sender") {
    Scene scene;
    scene.greet();
    scene.raw.send(Kind::data, some(20 * 1024));
    REQUIRE(scene.wait_for(State::over));
    const Down down = scene.rig.wait_for_down(scene.server);
    CHECK(down.peer == scene.server.downs[0].peer);
    CHECK_FALSE(down.error.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: invalid credits, or messages beyond the granted credits, disconnect") {
    {
        Scene scene;
        scene.greet();
        scene.raw.send(Kind::credit, {}, verbs::credits_max);
        scene.check_gone("more credits than were used");
    }
    {
        Scene scene;
        scene.greet();
        // A peer that gets no credits back must stop.
        const std::uint32_t granted = scene.raw.their_opening().credits;
        std::byte frame[64];
        fill_frame(frame, 0);
        for (std::uint32_t i = 0; i <= granted; ++i) {
            fill_frame(frame, i);
            scene.raw.send(Kind::data, frame);
        }
        scene.server.poll(2 * granted);  // All in one poll: no credits are returned between them.
        scene.check_gone("more messages than it was granted");
    }
}

TEST_CASE("verbs hostile: messages out of place disconnect their sender") {
    const std::pair<std::function<void(Scene&)>, const char*> acts[] = {
        {[](Scene& scene) { scene.raw.send(Kind::data, {}); }, "a message out of place"},
        {[](Scene& scene) { scene.raw.send_hello(stranger); }, "a second hello"},
        {[](Scene& scene) { scene.raw.send(Kind::credit, {}, 0); }, "without credits or content"},
        {[](Scene& scene) { scene.raw.send(Kind::credit, some(8), 1); }, ""},
        {[](Scene& scene) { scene.raw.send(Kind::queue_pair, {}); }, "invalid queue pair message"},
        {[](Scene& scene) {
             scene.raw.send(Kind::queue_pair, some(verbs::queue_pair_message_bytes));
         },
         "invalid queue pair message"},
    };
    for (const auto& [act, why] : acts) {
        Scene scene;
        scene.greet();
        act(scene);
        scene.check_gone(why);
    }
}

TEST_CASE("verbs hostile: a peer without a valid hello is dropped before peer_up") {
    const std::function<void(Scene&)> acts[] = {
        [](Scene& scene) { scene.raw.send(Kind::data, some(64)); },
        [](Scene& scene) { scene.raw.send(Kind::queue_pair, some(64)); },
        [](Scene& scene) { scene.raw.send(Kind::hello, some(64)); },
        [](Scene& scene) {
            scene.raw.send_hello({1, 2});
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
        scene.rig->run_until_idle();
        CHECK(scene.server.downs.empty());
        CHECK(scene.rig.is_alive(scene.pair));
    }
}

TEST_CASE("verbs hostile: a peer that requests queue pairs and reads no reply is disconnected") {
    Scene scene;
    scene.greet(1);  // It accepts one message.
    const int before = scene.rig.fake.counts().pairs;
    QueuePairMessage word;
    word.qp_number = 5;
    word.reads = 255;
    std::byte words[verbs::queue_pair_message_bytes];
    for (int i = 0; i < 10; ++i) {
        word.number = static_cast<std::uint32_t>(i);
        scene.raw.send(Kind::queue_pair, {words, encode(word, words)});
        scene.rig->run_until_idle();
        CHECK(scene.rig.fake.counts().pairs <= before + static_cast<int>(verbs::queue_pairs_max));
    }
    scene.check_gone("requests queue pairs and reads no reply");
}

TEST_CASE("verbs hostile: a flood of queue pair requests creates at most queue_pairs_max") {
    Scene scene;
    scene.greet(32);
    const int before = scene.rig.fake.counts().pairs;
    QueuePairMessage word;
    word.qp_number = 5;
    word.reads = 255;
    std::byte words[verbs::queue_pair_message_bytes];
    for (std::uint32_t i = 0; i < 200 && scene.raw.state() == State::connected; ++i) {
        word.number = i;
        // Returns the credits that it receives, as it must.
        scene.raw.send(Kind::queue_pair, {words, encode(word, words)},
                       scene.raw.got.empty() ? 0 : 1);
        if (!scene.raw.got.empty()) scene.raw.got.erase(scene.raw.got.begin());
        for (int turn = 0; turn < 3; ++turn) scene.rig->pump();
        scene.raw.step();
        CHECK(scene.rig.fake.counts().pairs <= before + static_cast<int>(verbs::queue_pairs_max));
    }
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: an unexpected or outdated queue pair reply is ignored") {
    Scene scene;
    scene.greet();
    QueuePairMessage word;
    std::byte words[verbs::queue_pair_message_bytes];
    for (const auto what : {QueuePairMessage::Type::reply, QueuePairMessage::Type::refusal}) {
        word.type = what;
        word.number = 1;
        scene.raw.send(Kind::queue_pair, {words, encode(word, words)});
    }
    scene.rig->run_until_idle();
    CHECK(scene.server.downs.empty());
    CHECK(scene.rig.is_alive(scene.pair));
}

TEST_CASE("verbs hostile: a refused or unusable queue pair fails the transfers") {
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
        std::optional<QueuePairMessage> asked;
        REQUIRE(scene.rig->pump_until([&] {
            scene.raw.step();
            for (const auto& message : scene.raw.got) {
                const auto word = verbs::decode_immediate(message.immediate);
                if (word && word->kind == Kind::queue_pair)
                    asked = verbs::decode_queue_pair_message(message.bytes);
            }
            return asked.has_value();
        }));
        QueuePairMessage answer = *asked;
        const bool refuses = how == Answer::refuses;
        answer.type = refuses ? QueuePairMessage::Type::refusal : QueuePairMessage::Type::reply;
        if (how == Answer::names_nobody) answer.qp_number = 5;
        answer.aux = static_cast<std::uint32_t>(Code::resource_exhausted);
        answer.reads = 16;
        std::byte words[verbs::queue_pair_message_bytes];
        scene.raw.send(Kind::queue_pair, {words, encode(answer, words)});
        scene.rig->run_until_idle();
        if (how == Answer::names_nobody) {
            // The local device gives up, and the connection ends.
            CHECK_FALSE(scene.server.rma_done.contains(cookie));
            scene.rig.fake.pass(60s);  // The device has chosen long timeouts.
        }
        if (!refuses) scene.rig.wait_for_down(scene.server);
        REQUIRE(scene.rig->pump_until([&] { return scene.server.rma_done.contains(cookie); }));
        CHECK(scene.server.rma_done[cookie] == Code::unavailable);
        CHECK(scene.rig.is_alive(scene.pair));
    }
}
