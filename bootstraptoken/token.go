package bootstraptoken

import (
	"crypto/rand"
	"crypto/subtle"
	"math/big"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/secret"
)

// The sizes of a token, in bytes. A token is its ID, a dot and its secret, all lowercase ASCII
// letters and digits: [a-z0-9]{6}\.[a-z0-9]{16} (Kubernetes bootstrap discovery, "Bootstrap
// Token Structure"; k8s.io/cluster-bootstrap/token/api, types.go, BootstrapTokenPattern).
const (
	idSize     = 6
	secretSize = 16
	tokenSize  = idSize + 1 + secretSize
)

const (
	wantToken  = "[a-z0-9]{6}.[a-z0-9]{16}"
	wantID     = "[a-z0-9]{6}"
	wantSecret = "[a-z0-9]{16}"
)

// Token is a bootstrap token: a public ID of six characters, and a secret of sixteen. The zero
// Token is not a token: it equals nothing, not even itself, and is refused wherever a token is
// needed.
//
// A Token shows its secret only through [Token.Reveal]: it holds it in a [secret.Value].
//
// A Token cannot be compared with ==, which would neither report two readings of one token as
// equal nor take constant time: use [Token.Equal].
type Token struct {
	id     string
	secret secret.Value[[secretSize]byte]
}

// Parse reads a token from its text, which is exactly 23 bytes: nothing is trimmed,
// and case matters. Otherwise the error is "bootstrap-token".
func Parse(s string) (Token, error) {
	switch {
	case strings.TrimSpace(s) != s:
		return Token{}, &Error{Check: checkToken, Got: "white space, such as a line end, around it", Want: wantToken}
	case len(s) != tokenSize:
		return Token{}, &Error{Check: checkToken, Got: otherForm(s), Want: wantToken + ", as kubeadm token create prints"}
	case s[idSize] != '.':
		return Token{}, &Error{Check: checkToken, Got: "no dot after the ID", Want: wantToken}
	}
	return New(s[:idSize], s[idSize+1:])
}

// otherForm guesses by its form which other kind of text was given as a token, and shows nothing
// of it.
func otherForm(s string) string {
	switch {
	case strings.HasPrefix(s, "K10") && strings.Contains(s, "::"): // k3s, pkg/clientaccess/token.go
		return `a token of k3s or RKE2 ("K10", a digest, "::" and a token, of which a bootstrap token is the part behind "::")`
	case strings.Contains(s, ":25000/"), len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "":
		return "a token of MicroK8s (an address with port 25000 and hexadecimal digits), which has no bootstrap tokens"
	case strings.HasPrefix(s, "H4sI"): // gzip in base64
		return "a token of k0s (a compressed kubeconfig), which has a bootstrap token in it"
	case strings.HasPrefix(s, "eyJ"): // {" in base64
		return "a JSON Web Token, such as a service account's"
	case strings.HasPrefix(s, "sha256:"):
		return "the pin of a CA"
	}
	return strconv.Itoa(len(s)) + " bytes"
}

// New makes a token from its two parts, the ID and the text of the secret. The error is
// "bootstrap-token" if either is malformed.
func New(id, text string) (Token, error) {
	if !isID(id) {
		return Token{}, &Error{Check: checkToken, Got: "an ID " + fault(len(id), idSize), Want: wantID}
	}
	if !isSecret(text) {
		return Token{}, &Error{Check: checkToken, Got: "a secret " + fault(len(text), secretSize), Want: wantSecret}
	}
	return Token{strings.Clone(id), secret.New([secretSize]byte([]byte(text)))}, nil
}

// fault describes a malformed part of a token, and shows nothing of it.
func fault(size, want int) string {
	if size != want {
		return "of " + strconv.Itoa(size) + " bytes"
	}
	return "with capital letters or other characters"
}

// ID returns the public part of the token, 6 bytes; it is empty for the zero Token.
func (t Token) ID() string { return t.id }

// IsZero reports whether t is the zero Token.
func (t Token) IsZero() bool { return t.secret.IsZero() }

// Reveal returns the whole token with its secret, as a node needs it to join. Anyone who reads
// it can authenticate as a bootstrapping node, so it must not reach a log. It is empty for the
// zero Token.
func (t Token) Reveal() string {
	if t.IsZero() {
		return ""
	}
	return t.id + "." + string(t.key())
}

// String returns the ID and "[secret]" in place of the secret, as in "abcdef.[secret]".
func (t Token) String() string {
	if t.IsZero() {
		return "no token"
	}
	return t.id + "." + secret.Redacted
}

// MarshalText returns what [Token.String] does, for encoders and log/slog. It cannot be read
// back: to store a token, call [Token.Reveal].
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Equal reports whether both are the same token, in time that does not depend on the secrets.
// Nothing equals the zero Token.
//
// It does not authenticate: [Authenticate] also checks the token's expiration and usages.
func (t Token) Equal(other Token) bool {
	if t.IsZero() { // another zero Token has the same ID and key
		return false
	}
	return t.id == other.id && subtle.ConstantTimeCompare(t.key(), other.key()) == 1
}

// key returns a copy of the secret's bytes, the key of discovery signatures; nil for the
// zero Token.
func (t Token) key() []byte {
	if t.IsZero() {
		return nil
	}
	held := t.secret.Reveal()
	return held[:]
}

func isID(s string) bool { return len(s) == idSize && inAlphabet(s) }

// isSecret looks at every byte, whatever it finds.
func isSecret(s string) bool { return len(s) == secretSize && inAlphabet(s) }

// inAlphabet reports whether s has only lowercase ASCII letters and digits. No branch depends
// on a byte of s.
func inAlphabet(s string) bool {
	bad := 0
	for i := range len(s) {
		c := int(s[i])
		digit := subtle.ConstantTimeLessOrEq('0', c) & subtle.ConstantTimeLessOrEq(c, '9')
		letter := subtle.ConstantTimeLessOrEq('a', c) & subtle.ConstantTimeLessOrEq(c, 'z')
		bad |= 1 ^ (digit | letter)
	}
	return bad == 0
}

// Generate makes a new random token: 82 bits of secret, each character drawn uniformly from
// the 36 by rejection sampling. Its randomness always comes from the operating system through
// crypto/rand, which ends the program if it fails. A test that needs a known token makes
// it with [New].
func Generate() Token {
	var text [idSize + secretSize]byte
	for i := range text {
		n, _ := rand.Int(rand.Reader, big.NewInt(36)) // never fails
		text[i] = character(int(n.Int64()))
	}
	t, _ := New(string(text[:idSize]), string(text[idSize:])) // nor does this
	return t
}

// character returns the i-th of "0123456789abcdefghijklmnopqrstuvwxyz", by arithmetic: a table
// would leave traces in the cache.
func character(i int) byte {
	return byte('0' + i + subtle.ConstantTimeLessOrEq(10, i)*('a'-'9'-1))
}
