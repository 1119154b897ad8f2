package claims

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"time"

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
	// FindRecord returns the record of a certificate by its credential ID ([CertificateRecord]), among
	// the certificates that were issued to that node through attestation and only for clients
	// (csr.IssuedRecord.ClientOf). The node's name is the certificate's. The record says which machine the certificate was issued to;
	// a certificate without one is refused. For such a certificate, the error wraps
	// [ErrNotFound]; any other error means that the records could not be read. It must be safe
	// for concurrent use.
	//
	// Nil means to rely on the certificate alone ([AttestedNodeFromTLS]): then only one with a
	// provider ID passes, since nothing else in it points to attestation.
	FindRecord func(ctx context.Context, nodeName, credentialID string) (*CertificateRecord, error)
	// Certificate holds the options for reading the client's certificate.
	Certificate NodeCertificateOptions
	// Refused, if not nil, is called by ServeHTTP with every request that was refused, and
	// the reason. The error holds names and UIDs, but no token.
	Refused func(r *http.Request, err error)
	// Observe, if not nil, is called once for every decision of ServeHTTP or [Handler.Admit], with
	// the reason of a refusal, or nil if the request was accepted, and how long the decision took.
	// Metrics can be made of it: the Check of an [*Error] is one of a fixed set, and
	// [refusal.ErrRetry] is found in an error that is no refusal. It must be safe for
	// concurrent use.
	Observe func(err error, took time.Duration)
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
// has an Authorization header. It is nil for a service that calls [Handler.Admit] alone: ServeHTTP
// then answers an accepted request with 404. Other requests are answered with only the name of the check
// that failed: 403 without a good certificate, 401 without a good token (RFC 6750,
// section 3), 503 if no answer could be had.
//
// The validator must have a Node ([ValidatorConfig]). Without FindRecord, a certificate says
// nothing about its machine except the provider ID. The facts that need more,
// [FactAttestedUID], [FactRegisteredMachine] and [FactRegisteredMachineUID], must not be
// required then, since no request could pass. If they are, or if the validator is
// unusable, the error is [refusal.CheckConfig].
func NewHandler(v *Validator, next http.Handler, opts HandlerOptions) (*Handler, error) {
	const unknown = FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID
	switch {
	case v == nil || v.config.Node.FindMachine == nil:
		return nil, refusal.Config("Validator", "without Node", "one with a NodeCheck")
	case opts.FindRecord == nil && v.config.Node.Require&unknown != 0:
		return nil, refusal.Config("Require", (v.config.Node.Require&unknown).String()+" of certificates alone", "FindRecord")
	}
	if next == nil {
		next = http.NotFoundHandler()
	}
	return &Handler{validator: v, next: next, opts: opts}, nil
}

// ServeHTTP decides on one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, err := h.Admit(r.Context(), r.TLS, r.Header.Values("Authorization"))
	r = r.Clone(cmp.Or(ctx, r.Context()))
	r.Header.Del("Authorization") // nothing after this may see or replay it
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	h.next.ServeHTTP(w, r)
}

// Admit is the decision of ServeHTTP for another protocol, such as gRPC: state is the connection's,
// authorization all values of the request's metadata of that name, each as in HTTP ("Bearer" and
// the token). In the context that it returns, [WorkloadFrom] finds the sender. The caller keeps the
// token away from whatever it calls next.
//
// If [refusal.ErrRetry] is in the error, no decision was possible (HTTP's 503); the check
// "node-certificate" stands for a client without a good certificate (403), any other for a
// request without a good token (401). The context is nil then.
func (h *Handler) Admit(ctx context.Context, state *tls.ConnectionState, authorization []string) (context.Context, error) {
	if h == nil || h.validator == nil {
		return nil, refusal.Config("Handler", "that NewHandler did not make", "one that it made")
	}
	began := time.Now()
	workload, err := h.decide(ctx, state, authorization)
	if h.opts.Observe != nil {
		h.opts.Observe(err, time.Since(began))
	}
	if err != nil {
		return nil, err
	}
	return context.WithValue(ctx, workloadKey{}, workload), nil
}

// decide returns the sender of a request, if it is accepted.
func (h *Handler) decide(ctx context.Context, state *tls.ConnectionState, authorization []string) (*Workload, error) {
	node, err := h.node(ctx, state)
	if err != nil {
		return nil, err
	}
	token, err := bearer(authorization)
	if err != nil {
		return nil, err
	}
	result, facts, err := h.validator.ValidateOnNode(ctx, token, node)
	if err != nil {
		return nil, err
	}
	return &Workload{Result: result, Node: node, Facts: facts}, nil
}

// node finds out which node is at the other end of a connection.
func (h *Handler) node(ctx context.Context, state *tls.ConnectionState) (*AttestedNode, error) {
	node, err := AttestedNodeFromTLS(state, h.opts.Certificate)
	if err != nil || h.opts.FindRecord == nil {
		return node, err // without a lookup
	}
	cert := state.VerifiedChains[0][0]
	record, err := h.opts.FindRecord(ctx, node.Name, credentialID(cert))
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Check: checkNodeCertificate, Got: "a certificate without a record",
			Want: "one that was issued through attestation", Err: err}
	case err != nil || record == nil:
		return nil, retry("the certificate's record", err)
	}
	return AttestedNodeFromRecord(cert, record, h.opts.Certificate)
}

// refuse answers with only the name of the check.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, check := http.StatusUnauthorized, "refused"
	if e, ok := errors.AsType[*Error](err); ok {
		check = string(e.Check)
	}
	switch {
	case errors.Is(err, refusal.ErrRetry):
		status, check = http.StatusServiceUnavailable, "retry"
		w.Header().Set("Retry-After", "1")
	case errors.Is(err, checkNodeCertificate):
		status = http.StatusForbidden
	case check == string(checkBearer):
		w.Header().Set("WWW-Authenticate", "Bearer")
	default:
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token", error_description="`+check+`"`)
	}
	w.Header().Set("Cache-Control", "no-store")
	if h.opts.Refused != nil {
		h.opts.Refused(r, err)
	}
	http.Error(w, "refused: "+check, status)
}

// bearer returns the one bearer token of a request.
func bearer(values []string) (string, error) {
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
