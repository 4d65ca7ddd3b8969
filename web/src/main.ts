import { VueQueryPlugin } from '@tanstack/vue-query'
import { createApp } from 'vue'
import App from './app.vue'
import { createLanguages, firstLanguage } from './i18n/languages'
import { rememberedChoice } from './page/reader-choices'
import { router } from './router'
import { leadToSignIn } from './sign-in/caller'
import './styles/page.css'

leadToSignIn(router)
const language = firstLanguage(rememberedChoice('language'), navigator.languages)
createApp(App).use(createLanguages(language)).use(router).use(VueQueryPlugin).mount('#app')
