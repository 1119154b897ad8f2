package attest_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/message"
)

// For other implementations of the messages: the secret S of a challenge, and the
// qualifying data of the statements in its answer, out of nothing but HMAC-SHA256. K is
// the ring's key, b the DER of the Binding as it stands in the challenge; after each
// label stands a zero byte. The values are those of the worked example in
// testdata/messages, whose TPM signed this qualifying data.
//
//	S  = HMAC-SHA256(K, "nodeattest/tpm/v1 secret" ‖ 00 ‖ b)
//	qd = HMAC-SHA256(S, "nodeattest/tpm/v1 certify" ‖ 00 ‖ b)
func Example_messages() {
	mac := func(key []byte, label string, b []byte) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(label))
		m.Write([]byte{0})
		m.Write(b)
		return m.Sum(nil)
	}
	k, err := ringKeyOfTheExample()
	if err != nil {
		log.Fatal(err)
	}
	b, err := os.ReadFile("testdata/messages/binding.der")
	if err != nil {
		log.Fatal(err)
	}
	s := mac(k, "nodeattest/tpm/v1 secret", b)
	qd := mac(s, "nodeattest/tpm/v1 certify", b)
	quoted := mac(s, "nodeattest/tpm/v1 quote", b) // the same of a quote
	fmt.Printf("S     %x\nqd    %x\nquote %x\n", s, qd, quoted)

	challenge, err := os.ReadFile("testdata/messages/challenge.der")
	if err != nil {
		log.Fatal(err)
	}
	c, err := message.ParseChallenge(challenge)
	if err != nil {
		log.Fatal(err)
	}
	evidence, err := os.ReadFile("testdata/messages/attest.bin")
	if err != nil {
		log.Fatal(err)
	}
	a, err := statement.ParseAttestation(evidence)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("S is the challenge's:", hmac.Equal(s, c.Clear))
	fmt.Println("qd is the statement's:", bytes.Equal(qd, a.ExtraData))
	// Output:
	// S     f4607c2285f600701b2f70fd18b442bedfe74f2168489f20881ff30ecd54d003
	// qd    4ebcfa9492ca919bf792ae64e00fa530aa6d1af9da08b8e4ae8b278d4020e62a
	// quote 1b2992c696f378599b7755c6fc7cc2664b81a6d14baf7d8eae7e503ff9f66af1
	// S is the challenge's: true
	// qd is the statement's: true
}

func ringKeyOfTheExample() ([]byte, error) {
	text, err := os.ReadFile("testdata/messages/example.json")
	if err != nil {
		return nil, err
	}
	var e struct{ RingKey struct{ Secret string } }
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	return hex.DecodeString(e.RingKey.Secret)
}
