// Package eventlog says what a machine booted: it replays the firmware's event log
// against a verified quote, and judges it.
//
//	policy := &eventlog.Policy{RequireSecureBoot: true}
//	config.QuotePolicy = policy // of the tpm.KindConfig
//
// A log is a list of events, each with a digest that the firmware extended into a PCR. The log
// itself is not signed, but the quoted PCRs are. So [Replay] computes what the log would have
// left in each PCR, and refuses it unless that is the quoted value, for every PCR of the quote
// and every bank. That proves the digests, and their order within one PCR, and nothing else:
// an event's type and data are bound only as far as its digest is one of its data, and
// [Event.Data] gives data in no other case.
//
// Parsing, replay and the reading of Secure Boot variables are go-attestation's. What it
// leaves open is closed here: no PCRs at all, a PCR that the log does not mention, a bank that
// does not match alongside one that does, events that it makes up itself, and a Secure Boot
// state read from a log that says nothing about it.
//
// This is a package of its own so that programs that judge no logs do not get go-attestation.
package eventlog
