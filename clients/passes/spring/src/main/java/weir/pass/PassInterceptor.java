package weir.pass;

import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Collections;
import java.util.List;
import org.springframework.web.cors.CorsUtils;
import org.springframework.web.servlet.HandlerInterceptor;

/**
 * Takes the pass of {@code Authorization: Bearer …} before a handler of Spring MVC, or answers with the refusal. It is an interceptor and
 * not a filter, so that Spring finds it by the same rules for paths as the handler.
 *
 * <p>A handler that declares {@code @RequestAttribute(PassInterceptor.PASS) Pass pass} answers 400 where this interceptor was forgotten.
 */
public final class PassInterceptor implements HandlerInterceptor {
    /** The attribute of a request that has the accepted {@link Pass}. */
    public static final String PASS = "weir.pass.Pass";

    private final Passes passes;

    /** Accepts these passes. */
    public PassInterceptor(Passes passes) {
        this.passes = passes;
    }

    @Override
    public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler) throws IOException {
        // A request is handled twice if its handler is asynchronous. A browser's question before a request of another origin has no pass,
        // and Spring leads it to no handler of the application.
        if (request.getAttribute(PASS) != null || CorsUtils.isPreFlightRequest(request)) {
            return true;
        }
        try {
            // Of two, a proxy before this service may have read the other one.
            List<String> fields = Collections.list(request.getHeaders("Authorization"));
            request.setAttribute(PASS, passes.acceptBearer(fields.size() == 1 ? fields.get(0) : null));
            return true;
        } catch (Refusal refusal) {
            refusal.answer(response);
            return false;
        }
    }
}
