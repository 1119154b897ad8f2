package claims

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkBearer: a request without exactly one well-formed bearer token (RFC 6750, section
// 2.1).
const checkBearer Check = "bearer-token"

// Workload is the sender of a request that a [Handler] accepted.
type Workload struct {
	// Result is the validated token.
	Result *Result
	// Node is the machine that the request came from.
	Node *AttestedNode
	// Facts says why the token belongs to that machine.
	Facts *NodeFacts
}

// HandlerOptions are the choices for [NewHandler]. Each zero field is a sensible default.
type HandlerOptions struct {
	// FindRecord returns the record of a certificate by its credential ID, among the
	// certificates that were issued through attestation and only for clients
	// (csr.IssuedRecord.ClientOf). The record says which machine the certificate was issued to;
	// a certificate without one is refused. For such a certificate, the error wraps
	// [ErrNotFound]; any other error means that the records could not be read. It must be safe
	// for concurrent use.
	//
	// Nil means to rely on the certificate alone ([AttestedNodeFromTLS]): then only one with a
	// provider ID passes, since nothing else in it points to attestation.
	FindRecord func(ctx context.Context, credentialID string) (*CertificateRecord, error)
	// Certificate holds the options for reading the client's certificate.
	Certificate NodeCertificateOptions
	// Refused, if not nil, is called with every request that was refused, and
	// the reason. The error holds names and UIDs, but no token.
	Refused func(r *http.Request, err error)
}

// Handler lets through only requests whose bearer token was issued to a workload on the
// very machine that the connection's client certificate was issued to; see [NewHandler].
type Handler struct {
	validator *Validator
	next      http.Handler
	opts      HandlerOptions
}

// NewHandler returns a handler that passes to next only requests whose bearer token was
// issued to a workload on the very machine that the connection's client certificate was
// issued to: mutual TLS with the node's certificate, plus the workload's token. The server's
// tls.Config must require a client certificate and verify it
// (tls.RequireAndVerifyClientCert, with ClientCAs a CA that signs only for attested nodes), and
// should have SessionTicketsDisabled: a resumed session is refused.
//
// next finds out who the sender is with [WorkloadFrom]; the request that it gets no longer
// has an Authorization header. Other requests are answered with only the name of the check
// that failed: 403 without a good certificate, 401 without a good token (RFC 6750,
// section 3), 503 if no answer could be had.
//
// The validator must have a Node ([ValidatorConfig]). Without FindRecord, a certificate says
// nothing about its machine except the provider ID. The facts that need more,
// [FactAttestedUID], [FactRegisteredMachine] and [FactRegisteredMachineUID], must not be
// required then, since no request could pass. If they are, or if the validator or next is
// unusable, the error is [refusal.CheckConfig].
func NewHandler(v *Validator, next http.Handler, opts HandlerOptions) (*Handler, error) {
	const unknown = FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID
	switch {
	case v == nil || v.config.Node.FindMachine == nil:
		return nil, refusal.Config("Validator", "without Node", "one with a NodeCheck")
	case next == nil:
		return nil, refusal.Config("next", "", "the handler of accepted requests")
	case opts.FindRecord == nil && v.config.Node.Require&unknown != 0:
		return nil, refusal.Config("Require", (v.config.Node.Require&unknown).String()+" of certificates alone", "FindRecord")
	}
	return &Handler{validator: v, next: next, opts: opts}, nil
}

// ServeHTTP decides on one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, tokenErr := bearer(r.Header)
	r = r.Clone(r.Context())
	r.Header.Del("Authorization") // nothing after this may see or replay it
	workload, status := &Workload{}, http.StatusForbidden
	var err error
	if workload.Node, err = h.node(r); err == nil {
		status, err = http.StatusUnauthorized, tokenErr
	}
	if err == nil {
		workload.Result, workload.Facts, err = h.validator.ValidateOnNode(r.Context(), token, workload.Node)
	}
	if err != nil {
		h.refuse(w, r, status, err)
		return
	}
	h.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), workloadKey{}, workload)))
}

// node finds out which node is at the other end of a connection.
func (h *Handler) node(r *http.Request) (*AttestedNode, error) {
	node, err := AttestedNodeFromTLS(r.TLS, h.opts.Certificate)
	if err != nil || h.opts.FindRecord == nil {
		return node, err // without a lookup
	}
	cert := r.TLS.VerifiedChains[0][0]
	record, err := h.opts.FindRecord(r.Context(), credentialID(cert))
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, certificateError("a certificate without a record", "one that was issued through attestation", err)
	case err != nil || record == nil:
		return nil, retry("the certificate's record", err)
	}
	return AttestedNodeFromRecord(cert, record, h.opts.Certificate)
}

// refuse answers with only the name of the check.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	check := "refused"
	if e, ok := errors.AsType[*Error](err); ok {
		check = string(e.Check)
	}
	switch {
	case errors.Is(err, refusal.ErrRetry):
		status, check = http.StatusServiceUnavailable, "retry"
		w.Header().Set("Retry-After", "1")
	case status == http.StatusUnauthorized && check == string(checkBearer):
		w.Header().Set("WWW-Authenticate", "Bearer")
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", error_description="`+check+`"`)
	}
	w.Header().Set("Cache-Control", "no-store")
	if h.opts.Refused != nil {
		h.opts.Refused(r, err)
	}
	http.Error(w, "refused: "+check, status)
}

// bearer returns the one bearer token of a request.
func bearer(header http.Header) (string, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", &Error{Check: checkBearer, Got: "no Authorization header, or several", Want: "one"}
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > jws.MaxTokenSize {
		return "", &Error{Check: checkBearer, Got: "no bearer token", Want: "Bearer and one token"}
	}
	return token, nil
}

type workloadKey struct{}

// WorkloadFrom returns the sender of a request, in a handler that a [Handler] passed it to.
// Anywhere else it returns false.
func WorkloadFrom(ctx context.Context) (*Workload, bool) {
	w, ok := ctx.Value(workloadKey{}).(*Workload)
	return w, ok
}
