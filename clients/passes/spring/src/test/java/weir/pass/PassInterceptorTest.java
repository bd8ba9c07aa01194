package weir.pass;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.springframework.test.web.servlet.request.MockMvcRequestBuilders.asyncDispatch;
import static org.springframework.test.web.servlet.request.MockMvcRequestBuilders.options;
import static org.springframework.test.web.servlet.request.MockMvcRequestBuilders.post;
import static weir.pass.Vectors.number;
import static weir.pass.Vectors.text;

import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.context.annotation.Bean;
import org.springframework.mock.web.MockHttpServletResponse;
import org.springframework.mock.web.MockServletContext;
import org.springframework.test.web.servlet.MockMvc;
import org.springframework.test.web.servlet.MvcResult;
import org.springframework.test.web.servlet.setup.MockMvcBuilders;
import org.springframework.web.bind.annotation.CrossOrigin;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.context.support.AnnotationConfigWebApplicationContext;
import org.springframework.web.servlet.config.annotation.EnableWebMvc;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;

/** The interceptor in Spring MVC, with controllers as docs/app/clients.md shows them. */
class PassInterceptorTest {
    private static final String GOOD = "Bearer " + text(Vectors.FIRST, "pass");
    private static final String REALM = "Bearer realm=\"weir\"";
    private static final String INVALID = REALM + ", error=\"invalid_token\", error_description=\"%s\"";

    private Publisher at;
    private Passes passes;
    private final AnnotationConfigWebApplicationContext context = new AnnotationConfigWebApplicationContext();
    private MockMvc mvc;

    @RestController
    static class Shop {
        private final Passes passes;

        Shop(Passes passes) {
            this.passes = passes;
        }

        @CrossOrigin("https://shop.example")
        @PostMapping("/enter")
        String enter(@RequestAttribute(PassInterceptor.PASS) Pass pass) {
            return pass.jti();
        }

        @PostMapping("/enter/later")
        Callable<String> later(@RequestAttribute(PassInterceptor.PASS) Pass pass) {
            return pass::jti;
        }

        @PostMapping("/forgotten")
        String forgotten(@RequestAttribute(PassInterceptor.PASS) Pass pass) {
            return pass.jti();
        }

        @PostMapping("/form")
        String form(@RequestParam("pass") String pass) {
            return passes.accept(pass).jti();
        }

        @ExceptionHandler
        void refused(Refusal refusal, HttpServletResponse response) throws IOException {
            refusal.answer(response);
        }
    }

    /** An application, set up as docs/app/clients.md says. */
    @EnableWebMvc
    static class Application implements WebMvcConfigurer {
        @Autowired private Passes passes;

        @Bean
        Shop shop() {
            return new Shop(passes);
        }

        @Override
        public void addInterceptors(InterceptorRegistry registry) {
            registry.addInterceptor(new PassInterceptor(passes)).addPathPatterns("/enter/**");
        }
    }

    @BeforeEach
    void open() throws IOException {
        at = new Publisher(Vectors.SETS);
        at.what = Map.of("set", "all");
        passes = new Passes(at.address(), text(Vectors.ALL, "zone"), text(Vectors.ALL, "audience"), null,
                () -> Instant.ofEpochSecond(number(Vectors.FIRST, "now")), () -> 0);
        passes.keys.limit = Duration.ofSeconds(20);
        context.setServletContext(new MockServletContext());
        context.addBeanFactoryPostProcessor(beans -> beans.registerSingleton("passes", passes));
        context.register(Application.class);
        context.refresh();
        mvc = MockMvcBuilders.webAppContextSetup(context).build();
    }

    @AfterEach
    void close() {
        context.close();
        at.close();
    }

    private MockHttpServletResponse ask(String path, String authorization) throws Exception {
        var request = post(path);
        return mvc.perform(authorization == null ? request : request.header("Authorization", authorization)).andReturn().getResponse();
    }

    private static void assertRefused(MockHttpServletResponse reply, int status, String code, String challenge) throws Exception {
        Map<?, ?> problem = Json.readObject(reply.getContentAsByteArray());
        assertEquals(List.of(status, code), List.of(reply.getStatus(), problem.get("code")));
        assertEquals((double) status, problem.get("status"));
        assertEquals(challenge, reply.getHeader("WWW-Authenticate"));
        assertEquals(List.of("application/problem+json", "no-store"), List.of(reply.getContentType(), reply.getHeader("Cache-Control")));
    }

    @Test
    void aPassLeadsToTheHandlerAndARefusalIsClear() throws Exception {
        MockHttpServletResponse entered = ask("/enter", GOOD);
        assertEquals("200 TEST_ZONE/0000002a/1", entered.getStatus() + " " + entered.getContentAsString());
        assertRefused(ask("/enter", null), 401, "no_pass", REALM);
        assertRefused(ask("/enter", "Basic YTpi"), 401, "no_pass", REALM);
        assertRefused(ask("/enter", GOOD), 401, "spent", INVALID.formatted("The pass was used already"));
        assertRefused(ask("/enter", "bearer hello"), 401, "unreadable", INVALID.formatted("This is not a pass"));
    }

    @Test
    void twoAuthorizationsAreNone() throws Exception {
        var twice = mvc.perform(post("/enter").header("Authorization", GOOD, "Bearer hello")).andReturn().getResponse();
        assertRefused(twice, 401, "no_pass", REALM);
    }

    @Test
    void whereThePassCannotBeCheckedTheServiceSaysWhenToComeAgain() throws Exception {
        at.what = Map.of("status", 500.0);
        MockHttpServletResponse away = ask("/enter", GOOD);
        assertRefused(away, 503, "keys_away", null);
        assertEquals("10", away.getHeader("Retry-After"));
    }

    @Test
    void anAsynchronousHandlerTakesThePassOnce() throws Exception {
        MvcResult begun = mvc.perform(post("/enter/later").header("Authorization", GOOD)).andReturn();
        MockHttpServletResponse entered = mvc.perform(asyncDispatch(begun)).andReturn().getResponse();
        assertEquals("200 TEST_ZONE/0000002a/1", entered.getStatus() + " " + entered.getContentAsString());
    }

    @Test
    void aBrowsersQuestionBeforeARequestOfAnotherOriginNeedsNoPassAndReachesNoHandler() throws Exception {
        var question = options("/enter").header("Origin", "https://shop.example").header("Access-Control-Request-Method", "POST");
        MockHttpServletResponse reply = mvc.perform(question).andReturn().getResponse();
        assertEquals(200, reply.getStatus());
        assertEquals("https://shop.example", reply.getHeader("Access-Control-Allow-Origin"));
        assertEquals("", reply.getContentAsString());
    }

    @Test
    void aHandlerIsNotReachedWhereTheInterceptorWasForgotten() throws Exception {
        assertEquals(400, ask("/forgotten", GOOD).getStatus());
    }

    @Test
    void thePassOfAFormIsAcceptedOnce() throws Exception {
        String pass = text(Vectors.FIRST, "pass");
        MockHttpServletResponse entered = mvc.perform(post("/form").param("pass", pass)).andReturn().getResponse();
        assertEquals("200 TEST_ZONE/0000002a/1", entered.getStatus() + " " + entered.getContentAsString());
        MockHttpServletResponse again = mvc.perform(post("/form").param("pass", pass)).andReturn().getResponse();
        assertRefused(again, 401, "spent", INVALID.formatted("The pass was used already"));
    }
}
