package weir.pass;

import java.math.BigInteger;
import java.security.AlgorithmParameters;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PublicKey;
import java.security.Signature;
import java.security.SignatureException;
import java.security.spec.ECFieldFp;
import java.security.spec.ECGenParameterSpec;
import java.security.spec.ECParameterSpec;
import java.security.spec.ECPoint;
import java.security.spec.ECPublicKeySpec;
import java.security.spec.RSAPublicKeySpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;

/**
 * A published key. It names its algorithm: if a pass could choose it, a forger would choose a weak one.
 *
 * @param algorithm {@code ES256}, {@code EdDSA} or {@code RS256}
 */
record Key(String algorithm, PublicKey key) {
    private static final int MIN_RSA_BITS = 2_048;
    private static final int MAX_RSA_BITS = 8_192;
    private static final int MAX_EXPONENT_BYTES = 4;
    private static final int COORDINATE = 32;
    /** What is before the 32 bytes of an Ed25519 key in the encoding of RFC 8410. */
    private static final byte[] ED25519_HEAD = HexFormat.of().parseHex("302a300506032b6570032100");

    /**
     * The bytes of base64url without padding.
     *
     * @throws IllegalArgumentException if it is something else
     */
    static byte[] decode(String part) {
        byte[] read = Base64.getUrlDecoder().decode(part);
        // Java takes padding, and bits that belong to no byte: one pass would have many texts.
        if (!Base64.getUrlEncoder().withoutPadding().encodeToString(read).equals(part)) {
            throw new IllegalArgumentException("not base64url");
        }
        return read;
    }

    /** The key of a JWK, or null if passes cannot be signed with it. */
    static Key of(Map<?, ?> jwk) {
        Object use = jwk.get("use");
        if (use != null && !use.equals("sig")) {
            return null;
        }
        try {
            if (is(jwk, "kty", "EC") && is(jwk, "crv", "P-256") && is(jwk, "alg", "ES256")) {
                return new Key("ES256", point(bytes(jwk, "x"), bytes(jwk, "y")));
            }
            if (is(jwk, "kty", "OKP") && is(jwk, "crv", "Ed25519") && is(jwk, "alg", "EdDSA")) {
                return new Key("EdDSA", edwards(bytes(jwk, "x")));
            }
            if (is(jwk, "kty", "RSA") && is(jwk, "alg", "RS256")) {
                return new Key("RS256", modulus(bytes(jwk, "n"), bytes(jwk, "e")));
            }
            return null;
        } catch (GeneralSecurityException | IllegalArgumentException fault) {
            return null;
        }
    }

    /** Whether {@code mark} is this key's signature of {@code text}. */
    boolean verifies(byte[] text, byte[] mark) {
        try {
            // Java reads the first 64 bytes of a signature of EdDSA, and takes any more.
            if ((algorithm.equals("ES256") && !hasTwoHalves(mark)) || (algorithm.equals("EdDSA") && mark.length != 2 * COORDINATE)) {
                return false;
            }
            Signature signature = Signature.getInstance(switch (algorithm) {
                case "ES256" -> "SHA256withECDSAinP1363Format";
                case "EdDSA" -> "Ed25519";
                default -> "SHA256withRSA";
            });
            signature.initVerify(key);
            signature.update(text);
            return signature.verify(mark);
        } catch (SignatureException fault) {
            return false;
        } catch (GeneralSecurityException fault) {
            throw new IllegalStateException("this Java has no " + algorithm, fault);
        }
    }

    /** The first versions of Java 17 take zeros for a signature of anything (CVE-2022-21449). */
    static boolean hasTwoHalves(byte[] mark) {
        return mark.length == 2 * COORDINATE
                && new BigInteger(1, Arrays.copyOf(mark, COORDINATE)).signum() > 0
                && new BigInteger(1, Arrays.copyOfRange(mark, COORDINATE, mark.length)).signum() > 0;
    }

    private static boolean is(Map<?, ?> jwk, String name, String wanted) {
        return wanted.equals(jwk.get(name));
    }

    private static byte[] bytes(Map<?, ?> jwk, String name) {
        if (jwk.get(name) instanceof String text) {
            return decode(text);
        }
        throw new IllegalArgumentException(name + " is not a text");
    }

    private static PublicKey point(byte[] xs, byte[] ys) throws GeneralSecurityException {
        if (xs.length != COORDINATE || ys.length != COORDINATE) {
            throw new IllegalArgumentException("not a point of P-256");
        }
        AlgorithmParameters parameters = AlgorithmParameters.getInstance("EC");
        parameters.init(new ECGenParameterSpec("secp256r1"));
        ECParameterSpec p256 = parameters.getParameterSpec(ECParameterSpec.class);
        BigInteger p = ((ECFieldFp) p256.getCurve().getField()).getP();
        BigInteger x = new BigInteger(1, xs);
        BigInteger y = new BigInteger(1, ys);
        // Java makes a key of any point: y² = x³ + ax + b is for us to check.
        BigInteger right = x.pow(3).add(p256.getCurve().getA().multiply(x)).add(p256.getCurve().getB()).mod(p);
        if (x.compareTo(p) >= 0 || y.compareTo(p) >= 0 || !y.pow(2).mod(p).equals(right)) {
            throw new IllegalArgumentException("not a point of P-256");
        }
        return KeyFactory.getInstance("EC").generatePublic(new ECPublicKeySpec(new ECPoint(x, y), p256));
    }

    private static PublicKey edwards(byte[] point) throws GeneralSecurityException {
        if (point.length != COORDINATE) {
            throw new IllegalArgumentException("not a key of Ed25519");
        }
        byte[] encoded = Arrays.copyOf(ED25519_HEAD, ED25519_HEAD.length + COORDINATE);
        System.arraycopy(point, 0, encoded, ED25519_HEAD.length, COORDINATE);
        return KeyFactory.getInstance("Ed25519").generatePublic(new X509EncodedKeySpec(encoded));
    }

    private static PublicKey modulus(byte[] n, byte[] e) throws GeneralSecurityException {
        RSAPublicKeySpec spec = new RSAPublicKeySpec(new BigInteger(1, n), new BigInteger(1, e));
        int bits = spec.getModulus().bitLength();
        if (bits < MIN_RSA_BITS || bits > MAX_RSA_BITS || e.length > MAX_EXPONENT_BYTES || !spec.getPublicExponent().testBit(0)) {
            throw new IllegalArgumentException("not a key of RSA that is of use");
        }
        // Java refuses exponents below 3.
        return KeyFactory.getInstance("RSA").generatePublic(spec);
    }
}
