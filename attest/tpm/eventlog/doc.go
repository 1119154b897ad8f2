// Package eventlog replays the firmware's event log against a verified quote, and judges the
// machine's boot.
//
//	policy := &eventlog.BootPolicy{RequireSecureBoot: true}
//	config.QuotePolicy = policy // of the tpm.KindConfig
//
// A log is a list of events, each with a digest that the firmware extended into a PCR. The log
// itself is not signed, but the quoted PCRs are. So [Replay] computes each PCR's value from the
// log, and refuses the log unless that is the quoted value, for every PCR of the quote and every
// bank. That proves the digests, and their order within one PCR, and nothing else: an event's type
// and data are bound only as far as its digest is one of its data, and [Event.Data] gives data in
// no other case.
//
// Logs are read in the formats of TPM 2.0 and TPM 1.2. Unknown elements do not refuse a log:
// digests of algorithms that the SDK does not compute, types of events that no profile has, keys of
// Secure Boot that crypto/x509 refuses ([SecureBoot.Unread]). Decisions rest on data that the
// quoted digests cover: see [Log.SecureBoot].
package eventlog
