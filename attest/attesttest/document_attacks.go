package attesttest

import (
	"context"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/oid"
)

// answerAttack is an attack on the answer of machine-1.
func answerAttack(class, name, what string, change func(*forgery)) Attack {
	return Attack{Name: name, Class: class, Description: what, make: func(ctx context.Context, at *attempt) (*csr.Request, error) {
		f := at.forge(ctx, at.applicant(requestOptions{}))
		change(f)
		request := f.applicant.filed(f.bundle(ctx))
		request.Metadata.CreationTimestamp = f.filed
		return request, nil
	}}
}

// documentAttacks are attacks on the challenge, the proof and the document.
func documentAttacks(undated bool) []Attack {
	attacks := slices.Concat(challengeAttacks(), echoAttacks(), signedAttacks())
	if !undated {
		day := 24 * time.Hour
		attacks = append(attacks,
			answerAttack(classStatement, "document-of-yesterday", "The platform signed the document a day before.", func(f *forgery) { f.signed = f.signed.Add(-day) }),
			answerAttack(classStatement, "document-of-tomorrow", "The platform will have signed the document tomorrow.", func(f *forgery) { f.signed = f.signed.Add(day) }))
	}
	return attacks
}

// challengeAttacks are consistent answers, with good signatures, to a challenge for another subject, of
// another time, or that no verifier made.
func challengeAttacks() []Attack {
	bound := func(name, what string, change func(f *forgery, b *message.Binding)) Attack {
		return answerAttack(classBinding, name, what, func(f *forgery) { change(f, &f.challenge) })
	}
	window := func(name, what string, issued, ends time.Duration) Attack {
		return bound(name, what, func(f *forgery, b *message.Binding) {
			b.IssuedAt, b.NotAfter = f.filed.Add(issued).Unix(), f.filed.Add(ends).Unix()
		})
	}
	under := func(name, what string, key func(*World) attest.RingKey) Attack {
		return bound(name, what, func(f *forgery, b *message.Binding) { f.ring = key(f.w); b.KeyID = f.ring.ID })
	}
	return []Attack{
		bound("answer-for-another-cluster", "The node answered a challenge of another cluster that has the same challenge keys.",
			func(_ *forgery, b *message.Binding) { b.ClusterID = "other" }),
		bound("answer-for-another-signer", "The node answered a challenge for the serving signer and files under the client one.",
			func(f *forgery, b *message.Binding) { b.SignerName = f.w.serving }),
		bound("answer-of-another-requester", "The node answered a challenge that was given to another requester.",
			func(_ *forgery, b *message.Binding) { b.Requester = "system:bootstrap:other1" }),
		bound("answer-for-another-lifetime", "The node answered a challenge for a longer lifetime.",
			func(_ *forgery, b *message.Binding) { b.ExpirationSeconds = 86400 }),
		bound("answer-of-another-machine-key", "The challenge was given to another machine.", func(_ *forgery, b *message.Binding) { b.MachineKey[0]++ }),
		bound("answer-for-another-request", "The challenge was given for another PKCS#10 request.", func(_ *forgery, b *message.Binding) { b.RequestHash[0]++ }),
		bound("challenge-secret-made-up", "No verifier made the challenge: its secret is zeros.",
			func(f *forgery, _ *message.Binding) { f.secret = make([]byte, message.SecretSize) }),
		under("challenge-key-retired", "The challenge was made with a key that is retired.", func(w *World) attest.RingKey { return w.retired }),
		under("challenge-key-unknown", "The challenge was made with a key that is not active yet.", func(w *World) attest.RingKey { return w.later }),
		window("challenge-window-stretched", "The challenge itself gave a window of two hours.", -30*time.Second, 2*time.Hour),
		window("challenge-window-reversed", "The challenge's window ends before it begins.", 30*time.Second, 0),
		window("answer-late", "The answer was filed a second after the challenge's window.", -10*time.Minute, -time.Second),
		window("answer-early", "The answer was filed two minutes before its challenge was given.", 2*time.Minute, 12*time.Minute),
		bound("answer-old", "The answer was filed two hours ago.", func(f *forgery, b *message.Binding) {
			f.filed = f.filed.Add(-2 * time.Hour)
			b.IssuedAt, b.NotAfter = b.IssuedAt-7200, b.NotAfter-7200
		}),
	}
}

// echoAttacks change the binding in the proof, and nothing else.
func echoAttacks() []Attack {
	echo := func(name, what string, change func(*message.Binding)) Attack {
		return answerAttack(classBinding, name, what, func(f *forgery) { f.echo = change })
	}
	return []Attack{
		echo("echo-key-id-unknown", "The echoed binding names an unknown challenge key.", func(b *message.Binding) { b.KeyID[0] ^= 1 }),
		echo("challenge-nonce-changed", "The echoed binding has another nonce.", func(b *message.Binding) { b.Nonce[0] ^= 1 }),
		echo("challenge-window-moved", "The times in the echoed binding were moved on by a minute.", func(b *message.Binding) { b.IssuedAt += 60; b.NotAfter += 60 }),
		echo("echo-issued-at", "The echoed binding was issued a second later.", func(b *message.Binding) { b.IssuedAt++ }),
		echo("echo-not-after", "The echoed window ends a second later.", func(b *message.Binding) { b.NotAfter++ }),
		echo("echo-not-after-stretched-within-an-hour", "The echoed window is stretched to an hour.",
			func(b *message.Binding) { b.NotAfter = b.IssuedAt + 3600 }),
		echo("echo-cluster", "The echoed binding names another cluster.", func(b *message.Binding) { b.ClusterID = "other" }),
		echo("echo-requester", "The echoed binding names another requester.", func(b *message.Binding) { b.Requester = "system:bootstrap:mallor" }),
		echo("echo-machine-key", "The echoed binding is for another machine's key.", func(b *message.Binding) { b.MachineKey[0] ^= 1 }),
		echo("echo-request-hash", "The echoed binding is for another request.", func(b *message.Binding) { b.RequestHash[31] ^= 1 }),
	}
}

// signedAttacks are attacks on the document.
func signedAttacks() []Attack {
	document := func(name, what string, change func(*forgery)) Attack {
		return answerAttack(classStatement, name, what, change)
	}
	over := func(name, what string, value func([]byte) []byte) Attack {
		return document(name, what, func(f *forgery) { f.value = value })
	}
	enclosed := func(name, what string, change func([]message.Statement) []message.Statement) Attack {
		return document(name, what, func(f *forgery) { f.statements = change })
	}
	return []Attack{
		document("document-forged", "An attacker signed the document with a key of its own.", func(f *forgery) { f.source = f.w.options.Documents.Attacker }),
		document("document-of-another-machine", "The document is machine-2's, the proof claims machine-1.", func(f *forgery) { f.machine = MachineTwo }),
		document("proof-of-another-machine", "The document is machine-1's, the proof claims machine-2.", func(f *forgery) { f.claim = MachineTwo }),
		document("answer-by-another-machine", "Machine-2 answers machine-1's challenge.", func(f *forgery) { f.claim, f.machine = MachineTwo, MachineTwo }),
		document("document-truncated", "The document lacks its last byte.", func(f *forgery) { f.document = func(b []byte) []byte { return b[:len(b)-1] } }),
		document("document-extended", "A zero byte follows the document's.", func(f *forgery) { f.document = func(b []byte) []byte { return append(b, 0) } }),
		over("document-over-another-value", "The document is over another value: it answers another challenge, or none.", func(b []byte) []byte { b[0]++; return b }),
		over("document-over-zeros", "The document is over zero bytes.", func(b []byte) []byte { return make([]byte, len(b)) }),
		over("document-over-the-first-bytes", "The document is over the first 8 bytes of the right value, and zeros.",
			func(b []byte) []byte { clear(b[8:]); return b }),
		enclosed("document-missing", "There is a proof and no document.", func(s []message.Statement) []message.Statement { return s[:1] }),
		enclosed("document-empty", "The document has length 0.", func(s []message.Statement) []message.Statement {
			return []message.Statement{s[0], {Type: s[1].Type, Stmt: []byte{4, 0}}}
		}),
		enclosed("document-null", "In the place of the document is a NULL.", func(s []message.Statement) []message.Statement {
			return []message.Statement{s[0], {Type: s[1].Type, Stmt: []byte{5, 0}}}
		}),
		enclosed("document-twice", "The document is included twice.", func(s []message.Statement) []message.Statement { return append(s, s[1]) }),
		enclosed("statements-reversed", "Document and proof change places.", func(s []message.Statement) []message.Statement { return []message.Statement{s[1], s[0]} }),
		enclosed("statement-unknown", "A third statement of an unknown type follows the two.", func(s []message.Statement) []message.Statement {
			return append(s, message.Statement{Type: oid.OID("\x88\x37\x03"), Stmt: []byte{5, 0}})
		}),
	}
}
