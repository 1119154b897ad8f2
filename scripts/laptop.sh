#!/bin/bash
# laptop.sh COMMAND stands in, on one machine, for what a cluster has already: a control
# plane, machines with TPMs, and something that runs pods and kubelets. All of it is the real
# thing, built from Go modules, but for the TPMs, which are swtpm's, and the container
# runtime, in which nothing runs. docs/getting-started.md walks through it.
#
#   build       builds the programs, and prints what the shell is to evaluate
#   up          starts a control plane and makes a software TPM with an EK certificate
#   controller  runs the Deployment's program under the Deployment's service account
#   node        starts a kubelet with the kubelet-authenticator, as root
#   thief       tries to become a node with the bootstrap token and another TPM
#   down        stops everything; what it kept stays in the folder
#
# Everything is below $LAPTOP, by default .cache/laptop in the repository, and listens on
# 127.0.0.1, on the ports LAPTOP_PORTS: kube-apiserver, etcd and its peers,
# kube-controller-manager, the controller's metrics and health, the kubelet and its health.
set -euo pipefail
shopt -s inherit_errexit # a $( ) that fails ends the script, if it is the value of an assignment
export GOWORK=off
cd "$(dirname "$0")/.."

dir=${LAPTOP:-$PWD/.cache/laptop}
read -r api etcd peer manager metrics health kubelet kubelet_health <<<"${LAPTOP_PORTS:-6443 2379 2380 10257 8080 8081 10250 10248}"
node=laptop
export KUBECONFIG=$dir/pki/super-admin.conf
# shellcheck disable=SC1091
[ ! -f "$dir/environment" ] || . "$dir/environment"

# start NAME COMMAND... starts a program in the background. Its output is in NAME.log.
start() {
	local name=$1 pid
	shift
	stop_one "$name"
	setsid nohup "$@" >"$dir/$name.log" 2>&1 </dev/null &
	pid=$!
	echo "$pid $(began "$pid")" >"$dir/$name.pid"
}

# began PID says when a process was started: in ticks, since which start of the machine.
began() {
	local text='' fields=()
	[ ! -r "/proc/$1/stat" ] || text=$(cat "/proc/$1/stat" 2>/dev/null) || true
	# Behind the program's name, which may have spaces, it is field 20.
	read -r -a fields <<<"${text##*)}"
	echo "${fields[19]:-gone} $(cat /proc/sys/kernel/random/boot_id)"
}

# runs NAME says whether what was started still runs. Another process may have its number by now.
runs() {
	local pid was
	[ -f "$dir/$1.pid" ] && read -r pid was <"$dir/$1.pid" && [ "$was" = "$(began "$pid")" ] && kill -0 "$pid" 2>/dev/null
}

# stop_one NAME stops it. What was started by setsid is a process group of its own.
stop_one() {
	local pid
	if ! runs "$1"; then
		rm -f "$dir/$1.pid"
		return 0
	fi
	read -r pid _ <"$dir/$1.pid"
	rm "$dir/$1.pid"
	kill -- "-$pid" 2>/dev/null || return 0
	for _ in $(seq 100); do
		kill -0 -- "-$pid" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -9 -- "-$pid" 2>/dev/null || true
}

# until_ready NAME COMMAND... waits until a command succeeds, while the program runs.
until_ready() {
	local name=$1
	shift
	for _ in $(seq 900); do
		if "$@" >/dev/null 2>&1; then
			echo "$name is ready"
			return
		fi
		if ! runs "$name"; then
			echo "laptop: $name has ended:" >&2
			tail -n 5 "$dir/$name.log" >&2
			return 1
		fi
		sleep 0.2
	done
	echo "laptop: $name is not ready after three minutes; its log is $dir/$name.log" >&2
	return 1
}

build() {
	local kubernetes program
	kubernetes=$(scripts/kube-binaries.sh)
	mkdir -p "$dir/bin"
	for program in kube/cmd/*/main.go; do
		program=$(basename "$(dirname "$program")")
		echo "laptop: building $program" >&2
		(cd kube && CGO_ENABLED=0 go build -o "$dir/bin/$program" "./cmd/$program")
	done
	(cd test/kubernetes && CGO_ENABLED=0 go build -o "$dir/bin/fakecri" ./fakecri)
	echo "export PATH='$dir/bin:$kubernetes':\$PATH KUBECONFIG='$KUBECONFIG'" | tee "$dir/environment"
}

# new_tpm NAME makes a TPM as a vendor does: with an EK, and a certificate for it by a CA.
new_tpm() {
	local tpm=$dir/$1 ca=$dir/vendor
	[ ! -d "$tpm" ] || return 0
	mkdir -p "$ca" "$tpm.new"
	printf 'statedir = %s\nsigningkey = %s/signkey.pem\nissuercert = %s/issuer.pem\ncertserial = %s/serial\n' "$ca" "$ca" "$ca" "$ca" >"$ca/localca.conf"
	printf -- '--platform-manufacturer Laptop\n--platform-version 1\n--platform-model Laptop\n' >"$ca/localca.options"
	printf 'create_certs_tool = %s\ncreate_certs_tool_config = %s/localca.conf\ncreate_certs_tool_options = %s/localca.options\n' "$(command -v swtpm_localca)" "$ca" "$ca" >"$ca/setup.conf"
	swtpm_setup --tpm2 --tpmstate "$tpm.new" --config "$ca/setup.conf" --create-ek-cert >"$tpm.log" 2>&1 || {
		cat "$tpm.log" >&2
		return 1
	}
	mv "$tpm.new" "$tpm"
}

start_tpm() {
	start "$1" swtpm socket --tpm2 --tpmstate "dir=$dir/$1" --flags startup-clear \
		--server "type=unixio,path=$dir/$1.sock" --ctrl "type=unixio,path=$dir/$1.ctrl"
	for _ in $(seq 100); do
		[ ! -S "$dir/$1.sock" ] || return 0
		sleep 0.1
	done
	cat "$dir/$1.log" >&2
	return 1
}

up() {
	local pki=$dir/pki apiserver version
	mkdir -p "$pki"
	chmod 700 "$dir"
	version=$(kubeadm version -o short)
	# kubeadm wants an address that others can reach; no client asks for this one.
	cat >"$dir/kubeadm.yaml" <<-END
		apiVersion: kubeadm.k8s.io/v1beta4
		kind: InitConfiguration
		localAPIEndpoint: {advertiseAddress: 192.0.2.1, bindPort: $api}
		---
		apiVersion: kubeadm.k8s.io/v1beta4
		kind: ClusterConfiguration
		kubernetesVersion: $version
		certificatesDir: $pki
		controlPlaneEndpoint: 127.0.0.1:$api
		apiServer: {certSANs: [127.0.0.1]}
	END
	if ! { kubeadm init phase certs all --config "$dir/kubeadm.yaml" &&
		kubeadm init phase kubeconfig super-admin --config "$dir/kubeadm.yaml" --kubeconfig-dir "$pki"; } >"$dir/kubeadm.log" 2>&1; then
		cat "$dir/kubeadm.log" >&2
		return 1
	fi

	start etcd etcd --name laptop --data-dir "$dir/etcd" --unsafe-no-fsync --log-level error \
		--listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
		--listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
		--initial-cluster "laptop=http://127.0.0.1:$peer"
	apiserver="https://127.0.0.1:$api"
	start kube-apiserver kube-apiserver --etcd-servers "http://127.0.0.1:$etcd" \
		--bind-address 127.0.0.1 --secure-port "$api" --advertise-address 127.0.0.1 --endpoint-reconciler-type none \
		--service-cluster-ip-range 10.96.0.0/12 --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
		--client-ca-file "$pki/ca.crt" --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
		--enable-bootstrap-token-auth --service-account-issuer https://kubernetes.default.svc \
		--service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
		--audit-log-path "$dir/audit.log" --audit-policy-file "$(audit_policy)"
	until_ready kube-apiserver kubectl get --raw /readyz
	start kube-controller-manager kube-controller-manager --kubeconfig "$KUBECONFIG" \
		--authentication-kubeconfig "$KUBECONFIG" --authorization-kubeconfig "$KUBECONFIG" \
		--bind-address 127.0.0.1 --secure-port "$manager" --leader-elect=false --use-service-account-credentials \
		--controllers 'certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,node-lifecycle-controller,bootstrap-signer-controller,token-cleaner-controller' \
		--cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" --root-ca-file "$pki/ca.crt" \
		--service-account-private-key-file "$pki/sa.key" --flex-volume-plugin-dir "$dir/flex"
	until_ready kube-controller-manager kubectl get serviceaccount default
	new_tpm tpm
	start_tpm tpm
	deploy "$apiserver"
	echo "laptop: apply $dir/deploy"
}

audit_policy() {
	printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n' >"$dir/audit-policy.yaml"
	echo "$dir/audit-policy.yaml"
}

# deploy writes the kustomization of this cluster: the shipped one, and its configuration.
deploy() {
	local to=$dir/deploy base id
	mkdir -p "$to"
	base=$(realpath --relative-to "$to" kube/deploy)
	id=$(openssl x509 -in "$dir/pki/ca.crt" -noout -pubkey | openssl pkey -pubin -outform DER | sha256sum | cut -d ' ' -f 1)
	cat >"$to/kustomization.yaml" <<-END
		apiVersion: kustomize.config.k8s.io/v1beta1
		kind: Kustomization
		resources: [$base]
		components: [$base/enforce]
		images: [{name: nodeattest.invalid/nodeattest, newName: registry.example/nodeattest, newTag: v1}]
		configMapGenerator:
		  - name: node-attestation
		    namespace: nodeattest-system
		    files: [config.yaml, inventory.yaml, ek-roots.pem]
		generatorOptions: {disableNameSuffixHash: true}
	END
	cat >"$to/config.yaml" <<-END
		apiVersion: config.nodeattest.github.io/v1alpha1
		kind: NodeAttestation
		cluster:
		  ids: [$id]
		tpm:
		  ekIssuers: [{rootsFile: ek-roots.pem, profile: tcg}]
		inventory: {file: inventory.yaml}
		membership: {mode: FirstUse, road: ek, identityClass: RSA-2048}
		controller: {metricsAddress: "127.0.0.1:$metrics", healthAddress: "127.0.0.1:$health"}
	END
	printf 'machines:\n  - nodeName: %s\n' "$node" >"$to/inventory.yaml"
	cp "$dir/vendor/swtpm-localca-rootca-cert.pem" "$to/ek-roots.pem"
}

# kubeconfig TOKEN writes one for the bearer of a token.
kubeconfig() {
	KUBECONFIG='' kubectl config --kubeconfig "$1" set-cluster laptop --server "https://127.0.0.1:$api" --certificate-authority "$dir/pki/ca.crt" --embed-certs >/dev/null
	KUBECONFIG='' kubectl config --kubeconfig "$1" set-credentials user --token "$2" >/dev/null
	KUBECONFIG='' kubectl config --kubeconfig "$1" set-context laptop --cluster laptop --user user >/dev/null
	KUBECONFIG='' kubectl config --kubeconfig "$1" use-context laptop >/dev/null
	chmod 600 "$1"
}

controller() {
	local token
	token=$(kubectl create token node-attestation-controller -n nodeattest-system --duration 24h)
	kubeconfig "$dir/controller.conf" "$token"
	cd "$dir/deploy"
	start controller node-attestation-controller --config config.yaml --kubeconfig "$dir/controller.conf"
	until_ready controller kubectl get --raw "/healthz" --server "http://127.0.0.1:$health"
	until_ready controller kubectl get --raw "/readyz" --server "http://127.0.0.1:$health"
}

# authenticator_config NAME TPM writes the kubelet-authenticator's file.
authenticator_config() {
	mkdir -p "$dir/$1"
	cat >"$dir/$1/authenticator.yaml" <<-END
		apiVersion: config.nodeattest.github.io/v1alpha1
		kind: KubeletAuthenticatorConfiguration
		nodeName: $node
		stateDir: $dir/$1/state
		kubeconfig: $dir/bootstrap.conf
		lifetime: 1h
		evidence:
		  tpm:
		    device: $dir/$2.sock
		    intermediates: $dir/vendor/issuer.pem
		kubelet: {config: $dir/$1/kubelet.yaml, flagFiles: [], processes: false}
	END
}

node() {
	local to=$dir/node token
	token=$(kubeadm token create --ttl 1h --description "for node $node")
	kubeconfig "$dir/bootstrap.conf" "$token"
	authenticator_config node tpm
	cat >"$to/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		rotateCertificates: false
		serverTLSBootstrap: false
		authentication: {x509: {clientCAFile: $dir/pki/ca.crt}, anonymous: {enabled: false}}
		authorization: {mode: Webhook}
		address: 127.0.0.1
		port: $kubelet
		healthzPort: $kubelet_health
		containerRuntimeEndpoint: unix://$dir/cri.sock
		podLogsDir: $to/pods
		volumePluginDir: $to/volumes
		# Of a machine that has other things to do.
		failSwapOn: false
		failCgroupV1: false
		cgroupDriver: cgroupfs
		cgroupsPerQOS: false
		enforceNodeAllocatable: []
		localStorageCapacityIsolation: false
		protectKernelDefaults: true
	END
	cat >"$to/kubelet.conf" <<-END
		apiVersion: v1
		kind: Config
		clusters: [{name: laptop, cluster: {server: "https://127.0.0.1:$api", certificate-authority: $dir/pki/ca.crt}}]
		contexts: [{name: laptop, context: {cluster: laptop, user: kubelet}}]
		current-context: laptop
		users:
		  - name: kubelet
		    user:
		      exec:
		        apiVersion: client.authentication.k8s.io/v1
		        command: $dir/bin/kubelet-authenticator
		        args: [-config, $to/authenticator.yaml, credential]
		        interactiveMode: Never
	END
	start authenticator kubelet-authenticator -config "$to/authenticator.yaml" daemon
	start cri fakecri "$dir/cri.sock"
	until_ready cri test -S "$dir/cri.sock"
	start kubelet unshare -m bash -c "$(kubelet_in_private)" bash "$to" \
		kubelet --config "$to/kubelet.yaml" --kubeconfig "$to/kubelet.conf" --root-dir "$to/root" --cert-dir "$to/pki" --hostname-override "$node"
	until_ready kubelet kubectl get node "$node"
}

# kubelet_in_private is what has the kubelet change nothing of this machine: it finds the
# kernel's settings as it wants them, and folders of the system that are empty, in a mount
# namespace of its own.
kubelet_in_private() {
	cat <<-'END'
		set -e
		printf 1 >"$1/overcommit"
		printf 10 >"$1/panic"
		printf 1 >"$1/oops"
		mount --make-rprivate /
		mount --bind "$1/overcommit" /proc/sys/vm/overcommit_memory
		mount --bind "$1/panic" /proc/sys/kernel/panic
		mount --bind "$1/oops" /proc/sys/kernel/panic_on_oops
		for folder in /var/log /var/lib /usr/libexec; do mount -t tmpfs none "$folder"; done
		shift
		exec "$@"
	END
}

thief() {
	local said request
	if ! kubectl --kubeconfig "$dir/bootstrap.conf" auth whoami >/dev/null; then
		echo 'laptop: no control plane takes the bootstrap token: run up, controller and node first' >&2
		return 1
	fi
	new_tpm stolen
	start_tpm stolen
	authenticator_config thief stolen
	echo 'laptop: a request without evidence, with the stolen token:'
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/thief/key.pem" \
		-subj "/O=system:nodes/CN=system:node:$node" -out "$dir/thief/request.pem" 2>/dev/null
	request=$(base64 -w 0 "$dir/thief/request.pem")
	said=$(kubectl --kubeconfig "$dir/bootstrap.conf" create -f - 2>&1 <<-END
		apiVersion: certificates.k8s.io/v1
		kind: CertificateSigningRequest
		metadata: {name: thief}
		spec:
		  request: $request
		  signerName: kubernetes.io/kube-apiserver-client-kubelet
		  usages: [digital signature, client auth]
	END
	) && {
		echo 'laptop: IT WAS TAKEN'
		return 1
	}
	refused "$said" ValidatingAdmissionPolicy
	echo 'laptop: the evidence of another TPM of the same vendor, with the stolen token:'
	said=$(kubelet-authenticator -config "$dir/thief/authenticator.yaml" rotate 2>&1) && {
		echo 'laptop: IT WAS ADMITTED'
		return 1
	}
	refused "$said" NotAMember
	stop_one stolen
}

# refused TEXT WHAT shows the last line of a refusal by WHAT: warnings and logs before it say the
# same. Whatever else fails shows nothing.
refused() {
	local last=${1##*$'\n'}
	echo "  $last"
	case $last in
	*"$2"*) ;;
	*)
		echo "laptop: that is no refusal by $2: $1" >&2
		return 1
		;;
	esac
}

down() {
	local name
	for name in kubelet cri authenticator stolen tpm controller kube-controller-manager kube-apiserver etcd; do
		stop_one "$name"
	done
	echo "laptop: stopped; rm -r $dir removes what is left"
}

case ${1:-} in
build | up | controller | node | thief | down) "$1" ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
